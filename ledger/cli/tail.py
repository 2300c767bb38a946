"""`tail`: outcome streams as JSON lines, from a saved cursor (C-111)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import click
import orjson

from ledger.cli.options import Settings, common
from ledger.cli.output import note
from ledger.cli.reach import advised, store_settings
from ledger.consumer import CursorGap, Cursors, FileCursorStore, Outcome, OutcomeConsumer, Start
from ledger.embedded.directory import make_private
from ledger.errors import LedgerError, StoreUnavailable
from ledger.supervise.backoff import Backoff

CURSOR_FILE = "tail.cursor"
AGAIN_SECONDS = 0.5


class _Ignoring(FileCursorStore):
    """A cursor file that is written but not read."""

    def load(self) -> Cursors | None:
        """None, whatever the file holds."""
        return None


@click.command()
@click.option("--tenant", help="Only this tenant's outcomes [every tenant's].")
@click.option("--cursor", type=click.Path(path_type=Path, dir_okay=False), help="Cursor file [DATA/tail.cursor].")
@click.option("--from-start", is_flag=True, help="From the oldest outcome kept, whatever the cursor file says.")
@click.option(
    "--resync", is_flag=True, help="First every outcome from history, then the streams: the way out of a gap."
)
@click.option("--once", is_flag=True, help="Stop when there is nothing more to read.")
@common
def tail(
    settings: Settings, tenant: str | None, cursor: Path | None, from_start: bool, resync: bool, once: bool
) -> None:
    """Follow published outcomes, one JSON object a line; a first run starts with what is published from now on.

    A line may come twice after an interruption, never not at all: take the highest mutation_revision of a mutation.
    """
    if from_start and resync:
        raise click.UsageError("--from-start and --resync exclude each other: history holds what the streams do")
    kind = _Ignoring if from_start else FileCursorStore
    consumer = OutcomeConsumer(
        store_settings(settings),
        kind(cursor or _default_file(settings, tenant)),
        tenant=tenant,
        start=Start.BEGINNING if from_start else Start.NOW,
    )
    with consumer, advised(settings):
        try:
            with interrupts():
                if resync:
                    for outcome in consumer.resync():
                        _print([outcome])
                _follow(consumer, once=once)
        except CursorGap as gap:
            raise LedgerError(f"{gap.finding}; run again with --resync", code=gap.code) from None
        except KeyboardInterrupt:
            # The way to end a command that follows; everything printed is saved but the last batch.
            return


@contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C ends the block for certain: Python drops an interrupt that falls into a finalizer, so it comes again."""
    thread, timers = threading.get_ident(), list[threading.Timer]()

    def heard(_number: int, _frame: FrameType | None) -> None:
        again = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (thread, signal.SIGINT))
        again.daemon = True
        timers.append(again)
        again.start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        signal.signal(signal.SIGINT, before)


def _follow(consumer: OutcomeConsumer, *, once: bool) -> None:
    """Prints batches; a store that goes away is asked again until it is back, unless `once`."""
    backoff = Backoff()
    while True:
        begun = time.monotonic()
        try:
            for batch in consumer.batches(once=once):
                _print(batch)
        except StoreUnavailable as error:
            if once:
                raise
            pause = backoff.delay(time.monotonic() - begun)
            note(f"{error}; asking again in {pause:g} s")
            time.sleep(pause)
        else:
            return


def _print(outcomes: Sequence[Outcome]) -> None:
    """Written and flushed before the cursor moves: a line that was never seen must come again."""
    if outcomes:
        click.echo(b"\n".join(orjson.dumps(outcome) for outcome in outcomes))


def _default_file(settings: Settings, tenant: str | None) -> Path:
    make_private(settings.data_dir)
    name = CURSOR_FILE if tenant is None else f"{CURSOR_FILE}.{quote(tenant, safe='')}"
    return settings.data_dir / name
