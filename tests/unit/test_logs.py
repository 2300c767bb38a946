"""A log line that cannot be written changes nothing else."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
import structlog

from ledger.logs import configure_logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_closed_standard_error_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = io.StringIO()
    monkeypatch.setattr(sys, "stderr", gone)
    configure_logs()
    log = structlog.get_logger("tests.logs")
    log.warning("first")
    assert '"first"' in gone.getvalue()
    gone.close()

    log.warning("nobody reads this")

    after = io.StringIO()
    monkeypatch.setattr(sys, "stderr", after)
    log.warning("somebody reads again")
    assert '"somebody reads again"' in after.getvalue()
