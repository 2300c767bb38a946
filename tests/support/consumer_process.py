"""A consumer to be killed: `python -m tests.support.consumer_process URL CURSOR_FILE OUTPUT_FILE`.

Writes one line an outcome, straight to the file, before it asks for the next.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ledger.consumer import FileCursorStore, OutcomeConsumer


def main(url: str, cursor: str, output: str) -> None:
    """Reads for ever, a few outcomes a batch, so that a kill lands between any two steps."""
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with OutcomeConsumer(url, FileCursorStore(Path(cursor)), count=2, block_seconds=0.2) as consumer:
        for outcome in consumer:
            line = f"{outcome.logical_turn_id} {outcome.mutation_id} {outcome.mutation_revision}\n"
            os.write(handle, line.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
