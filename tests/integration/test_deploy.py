"""The shipped store configuration keeps the promise, as the service itself judges it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.config import RedisConfig
from ledger.durability import Level, Verdict, judge, plain_client, read_facts
from tests.support.valkey import ValkeyProcess

CONF = Path(__file__).parents[2] / "deploy" / "valkey.conf"


@pytest.mark.proves("C-20", "C-21")
def test_shipped_store_configuration_is_verified(tmp_path: Path) -> None:
    lines = (line.split("#")[0].split(maxsplit=1) for line in CONF.read_text().splitlines())
    settings = {line[0]: line[1].strip().strip('"') for line in lines if line}
    for given_by_the_test in ("port", "bind", "dir"):
        settings.pop(given_by_the_test)
    server = ValkeyProcess(tmp_path / "valkey", settings=settings)
    server.start()
    try:
        with plain_client(server.url) as client:
            report = judge(read_facts(client), RedisConfig(url=server.url))
    finally:
        server.stop()

    assert report.verdict is Verdict.VERIFIED
    assert all(finding.verdict is Level.OK for finding in report.findings), report.findings
