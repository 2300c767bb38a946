"""`doctor`: a line for each check, with what was seen and how to put it right."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
import redis

from ledger.cli import checks
from ledger.cli.options import Settings, common
from ledger.cli.output import print_json
from ledger.cli.primaries import open_primaries
from ledger.config import Config, RedisConfig
from ledger.durability import Finding, Level, Report, judge, read_facts
from ledger.embedded import EmbeddedStore, find_url
from ledger.errors import LedgerError


@click.command()
@common
def doctor(settings: Settings) -> None:
    """Check store, configuration, job workers and MCP servers; exit 1 if a promise cannot be kept."""
    config, first = checks.config_check(settings)
    findings = [first]
    if config is not None:
        findings += [checks.token_check(settings), *_store(settings, config), *checks.extra_checks(config)]
    held = all(finding.verdict is not Level.BAD for finding in findings)
    if settings.json:
        print_json({"ok": held, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            click.echo(_line(finding))
    if not held:
        raise click.exceptions.Exit(1)


def _store(settings: Settings, config: Config) -> list[Finding]:
    try:
        with _url(settings) as (url, running):
            primaries = open_primaries(url)
            findings = [
                finding
                for name, client in primaries
                for finding in _server(client, config.redis, running, "" if len(primaries) == 1 else f"{name}: ")
            ]
    except LedgerError as error:
        return [Finding("store", Level.BAD, str(error), "start it, or correct redis.url")]
    if not running:
        detail = f"none runs under {settings.data_dir}; a scratch one was started for these checks"
        return [Finding("embedded store", Level.OK, detail), *findings]
    return findings


def _server(client: redis.Redis, settings: RedisConfig, running: bool, label: str) -> Iterator[Finding]:
    with client:
        report = judge(read_facts(client), settings)
        found: list[Finding | None] = [_durability(report), *report.findings]
        if report.bad:
            found.append(Finding("confirmed write", Level.WARN, "not measured while a setting above is bad"))
        else:
            found.append(checks.write_latency(client, settings))
        if running:
            found.append(checks.job_workers(client))
            found.append(checks.late_reports(client, settings.shards))
        for finding in found:
            if finding is not None:
                yield Finding(finding.name, finding.verdict, label + finding.detail, finding.fix)


def _durability(report: Report) -> Finding:
    """The one word that `/readyz` shows too (C-21); what makes a store unsafe stands in lines of its own."""
    return Finding("durability", Level.BAD if report.bad else Level.OK, report.verdict.value)


@contextmanager
def _url(settings: Settings) -> Iterator[tuple[str, bool]]:
    """The URL to look at, and whether it is the real store (False: a scratch one, started for this)."""
    url = settings.configured_url() or find_url(settings.data_dir)
    if url is not None:
        yield url, True
        return
    # On the data's own disk if there is one yet, because the write latency is the disk's.
    base = settings.data_dir if settings.data_dir.is_dir() else None
    scratch = Path(tempfile.mkdtemp(prefix="doctor-", dir=base))
    try:
        with EmbeddedStore(scratch) as store:
            yield store.url, False
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _line(finding: Finding) -> str:
    fix = f"; fix: {finding.fix}" if finding.fix else ""
    return f"{finding.verdict:<5}{finding.name:<27}{finding.detail}{fix}"
