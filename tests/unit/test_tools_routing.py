"""Which server a tool's name leads to, and what may reach a log."""

from __future__ import annotations

import logging

import pytest

from ledger.tool_names import split_tool
from workers.tools.quiet import LOGGERS, keep_content_out_of_logs


@pytest.mark.proves("C-03")
@pytest.mark.parametrize(
    ("tool", "route"),
    [
        ("mcp__a__t", ("a", "t")),
        ("mcp__a__b__t", ("a__b", "t")),
        ("mcp__a__c__t", ("a", "c__t")),
        ("mcp__a_b__t", ("a_b", "t")),
        ("mcp__a__b__", None),
        ("mcp__a__", None),
        ("mcp__a", None),
        ("mcp__z__t", None),
        ("mcp__", None),
        ("a__t", None),
        ("MCP__a__t", None),
        ("", None),
    ],
)
def test_a_name_leads_to_the_longest_configured_server(tool: str, route: tuple[str, str] | None) -> None:
    assert split_tool(tool, {"a": 0, "a__b": 0, "a_b": 0}) == route


@pytest.mark.parametrize("name", LOGGERS)
def test_the_sdks_loggers_keep_content_to_themselves(name: str, caplog: pytest.LogCaptureFixture) -> None:
    keep_content_out_of_logs()
    keep_content_out_of_logs()
    logger = logging.getLogger(name)
    with caplog.at_level(logging.DEBUG, logger=name):
        logger.debug("sending %s", "secret")
        logger.info("sending: secret")
        logger.warning("cannot parse %s", "secret")
        logger.error("failed: secret")
        try:
            int("secret")
        except ValueError:
            logger.exception("raised")
    assert [record.getMessage() for record in caplog.records] == [
        "MCP client: cannot parse",
        "MCP client: failed",
        "MCP client: raised",
    ]
    assert "secret" not in caplog.text
