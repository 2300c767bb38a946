"""effect-ledger on SQLite: one `execute` a unit from 64 threads. `effect_ledger_peer.py DIRECTORY`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from effect_ledger import EffectExecutor
from protocol import serve_threads


def main(directory: str) -> None:
    """Serves until told to end."""
    path = Path(directory) / f"effects-{os.getpid()}.sqlite"
    executor = EffectExecutor(path, scope="bench")

    def one(n: int) -> None:
        executor.execute(f"op-{n}", "noop:v1", {"n": n, "note": "a few words for the tool"}, lambda _: {"n": n})

    serve_threads(one)


if __name__ == "__main__":
    main(sys.argv[1])
