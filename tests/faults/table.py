"""The rows of the fault matrix: what is done, how often by `make faults`, and how little of it by `make test`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.boundaries import WORKER
from tests.faults.harness.tally import Tally
from tests.faults.rows import (
    clocks,
    failover,
    kills,
    network,
    newer,
    poison,
    races,
    readers,
    restarts,
    settings,
    stops,
    store,
    tools,
    torn,
)

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One row, or one way to play it: `play(folder, seed, **options)` answers a Tally.

    `make faults` plays it with `seeds` seeds and the options `whole`, each about `seconds` long; `make test` once for
    each entry of `small`, at the same time as other rows if it `waits` most of its time. Seeds that found something
    once are in `kept` and come first.
    """

    name: str
    what: str
    play: Callable[..., Tally]
    seeds: int
    seconds: float
    whole: Options = field(default_factory=dict)
    small: Sequence[Options] = ({},)
    kept: Sequence[int] = ()
    waits: bool = False

    @property
    def numbers(self) -> range:
        """The rows of the matrix that this is, `5-10` being several."""
        first, _, last = self.name.split()[0].partition("-")
        return range(int(first), int(last or first) + 1)

    def runs(self) -> list[int]:
        """The seeds of `make faults`."""
        others = (seed for seed in range(1, self.seeds + 1) if seed not in self.kept)
        return [*self.kept, *others][: max(self.seeds, len(self.kept))]


ROWS: tuple[Row, ...] = (
    Row(
        "1", "kill -9 of a worker at each named point", kills.kill_at_every_point,
        seeds=12, seconds=90, small=[{"points": WORKER[part::2]} for part in range(2)],
    ),
    Row("1 doors", "kill -9 behind a front door at each named point", kills.kill_front_doors, seeds=4, seconds=90,
        whole={"times": 8}, small=[{"times": 4}]),
    Row("2", "SIGSTOP past the lease with calls in flight", stops.stop_past_the_lease, seeds=3, seconds=30,
        small=[{"rounds": 1}], waits=True, kept=[1]),
    Row("3", "SIGSTOP between intent and dispatch", stops.stop_before_dispatch, seeds=3, seconds=45,
        small=[{"points": ["begin.confirmed"]}], waits=True),
    Row("4", "50 claimers of one session", stops.fifty_claimers, seeds=3, seconds=5, small=[{"rounds": 2}]),
    Row("5", "kill -9 of the store in a burst", store.kill_the_store, seeds=6, seconds=25, small=()),
    Row("6", "power loss: AOF cut to its last fsynced size", store.lose_power, seeds=10, seconds=30, small=()),
    Row("7", "a store that would lose a second of writes", store.refuse_everysec, seeds=2, seconds=5),
    Row("8", "fsync takes 20 / 200 / 2000 ms", store.slow_disk, seeds=3, seconds=40, small=()),
    Row("9", "fsync fails with EIO", store.failing_fsync, seeds=4, seconds=25, small=()),
    Row("10 bytes", "the AOF's disk takes no more bytes", store.full_disk, seeds=3, seconds=25, small=()),
    Row("5-10 mixed", "the same of rows 5, 6, 8, 9 and 10 in turns", store.one_after_the_other, seeds=2, seconds=60,
        small=[{"losses": 5}]),
    Row("10 tmpfs", "a full file system of 4 MB", store.full_tmpfs, seeds=2, seconds=25, small=()),
    Row("11", "AOF cut at every byte of its last write", torn.cut_at_every_byte, seeds=8, seconds=120,
        whole={"step": 8}, small=[{"step": 211}]),
    Row("12", "replies lost after their script ran", network.lose_replies, seeds=4, seconds=45,
        whole={"rounds": 3}, small=[{"rounds": 1}]),
    Row("13", "nothing passes for 30 s", network.black_hole, seeds=2, seconds=60, small=[{"seconds": 4.0}],
        waits=True),
    Row("14", "connection swapped between write and WAITAOF", network.swap_connections, seeds=3, seconds=25,
        small=[{"rounds": 4}]),
    Row("15 in step", "promotion with aof_replicas = 1", failover.promote_in_step, seeds=3, seconds=40,
        small=[{"rounds": 1}]),
    Row("15 missed", "promotion of a replica that missed writes", failover.go_back, seeds=3, seconds=25,
        whole={"how": "missed"}),
    Row("15 emptied", "FLUSHALL", failover.go_back, seeds=2, seconds=25, whole={"how": "emptied"}, small=(),
        kept=[2]),
    Row("15 older", "an old AOF is put back", failover.go_back, seeds=2, seconds=25, whole={"how": "older"},
        small=()),
    Row("15 cluster", "a master of a cluster dies, with aof_replicas = 1", failover.promote_in_cluster, seeds=3,
        seconds=45, small=()),
    Row("16", "wall clocks jump +60 s / -1 h", clocks.move_clocks, seeds=3, seconds=45, small=[{"calls": 3}]),
    Row("17 settings", "CONFIG SET of a promised setting", settings.change_settings, seeds=2, seconds=60,
        small=[{"promises": {"appendfsync": settings.PROMISES["appendfsync"]}}], waits=True),
    Row("17 scripts", "SCRIPT FLUSH and FUNCTION FLUSH", settings.flush_scripts, seeds=2, seconds=20,
        small=[{"rounds": 3}], kept=[1]),
    Row("18", "maxmemory reached; bodies of 100 MB", settings.full_memory, seeds=3, seconds=30,
        small=[{"rounds": 1}]),
    Row("19", "poison in bodies, arguments, paths and headers", poison.poison, seeds=3, seconds=60,
        whole={"examples": 600}, small=[{"examples": 40}]),
    Row("20", "tools hang, answer late, by half, twice; die, flood, ignore a cancel", tools.misbehaving_tools,
        seeds=3, seconds=35, small=[{"stdio": ["ok", "half", "twice", "exit"], "http": ["http_half", "drop"]}]),
    Row("22", "SIGTERM to workers and front doors in turn", restarts.rolling_restart, seeds=3, seconds=60,
        small=[{"rounds": 1}]),
    Row("23", "a reader dropped every 100 ms, overtaken by trimming", readers.dropped_reader, seeds=3, seconds=60,
        whole={"rounds": 8}, small=[{"rounds": 1}]),
    Row("24", "50 threads decide one approval", races.approval_races, seeds=3, seconds=40, small=[{"rounds": 1}]),
    Row("25", "records that a newer version wrote", newer.newer_records, seeds=3, seconds=25,
        small=[{"kinds": ["session", "run"]}]),
)  # fmt: skip


def row(name: str) -> Row:
    """The row of that name."""
    return next(row for row in ROWS if row.name == name)


def chosen(names: Sequence[str]) -> list[Row]:
    """Rows by name or by number, where `15` is every way to play it; all without names.

    Raises:
        LookupError: no row has that name.
    """
    for name in names:
        if not any(_is_meant(row, name) for row in ROWS):
            raise LookupError(f"no row {name!r}")
    return [row for row in ROWS if not names or any(_is_meant(row, name) for name in names)]


def _is_meant(row: Row, name: str) -> bool:
    return name in (row.name, row.name.split()[0])
