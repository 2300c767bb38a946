"""Structured logs: one JSON object a line on stderr; never arguments, tokens or secrets (I9)."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog


class _CurrentStderr:
    """Standard error as it is when a line is written. A line that cannot be written is lost, and nothing else is:

    a log whose reader went away must never change what becomes of a mutation.
    """

    def write(self, text: str) -> None:
        """Writes what can be written."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        """Flushes what can be flushed."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logs(level: int = logging.INFO) -> None:
    """Sends structlog and the standard library's warnings to stderr as JSON lines."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _CurrentStderr())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
