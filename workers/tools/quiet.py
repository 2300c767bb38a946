"""Keeping what servers say out of our logs: the SDK logs messages and parse errors with their content."""

from __future__ import annotations

import logging

# Each of these was seen to log message text, a URL with its query, or a traceback that quotes its input.
LOGGERS = (
    "client",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpx2",
    "mcp.client.streamable_http",
    "mcp.shared.dispatcher",
    "mcp.shared.jsonrpc_dispatcher",
)


class _NoContent(logging.Filter):
    """Drops what is below a warning, and tracebacks and arguments of the rest."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return False
        record.msg = f"MCP client: {str(record.msg).partition('%')[0].partition(':')[0].strip()}"
        record.args = None
        record.exc_info = None
        record.exc_text = None
        return True


_FILTER = _NoContent()


def keep_content_out_of_logs() -> None:
    """Put the filter on the SDK's loggers; doing it again changes nothing."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if _FILTER not in logger.filters:
            logger.addFilter(_FILTER)
