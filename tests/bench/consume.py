"""One consumer that reads all outcome streams from their beginning, cursors kept in a file.

`python -m tests.bench.consume URL`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger.consumer import FileCursorStore, OutcomeConsumer
from tests.bench.protocol import serve


def main(url: str) -> None:
    """Each request reads everything once, whatever it asks for."""

    def read(_count: int, _flight: int) -> dict[str, Any]:
        with TemporaryDirectory() as scratch, OutcomeConsumer(url, FileCursorStore(Path(scratch) / "c")) as consumer:
            began = time.perf_counter()
            count = sum(len(batch) for batch in consumer.batches(once=True))
            seconds = time.perf_counter() - began
        return {"count": count, "seconds": seconds, "p50_ms": 0.0, "p99_ms": 0.0}

    serve(read, lambda count, gap: read(count, 1))


if __name__ == "__main__":
    main(sys.argv[1])
