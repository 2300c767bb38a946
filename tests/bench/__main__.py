"""`python -m tests.bench SET`: what `make bench`, `bench-peers`, `bench-flat` and `bench-spread` run."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from tests.bench.contestants import FEW, HOME, OTHERS
from tests.bench.drivers import DriverFailed
from tests.bench.fig_flat import SIZES, flat_figures
from tests.bench.fig_http import http_figures, restate_figures
from tests.bench.fig_memory import store_figures
from tests.bench.fig_spread import spread_figures
from tests.bench.fig_submit import submit_figures
from tests.bench.fig_worker import worker_figures
from tests.bench.measure import Figure, Options, say
from tests.bench.report import facts, write

Part = Callable[[Options], Iterator[Figure]]


def _few(options: Options) -> Iterator[Figure]:
    return submit_figures(options, FEW)


def _others(options: Options) -> Iterator[Figure]:
    return submit_figures(Options(options.seconds, options.rounds, options.only or frozenset({"B3"})), OTHERS)


RUN: dict[str, Part] = {
    "the worker alone": worker_figures,
    "submitted by a host": _few,
    "over HTTP": http_figures,
    "memory and consumers": store_figures,
}
PEERS: dict[str, Part] = {"the other peers": _others, "Restate": restate_figures}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a set of figures; 0 unless something could not be measured. A missed goal is told, not failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("set", nargs="?", default="run", choices=("run", "peers", "flat", "spread"))
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a slice")
    parser.add_argument("--rounds", type=int, default=5, help="pairs a ratio")
    parser.add_argument("--only", default="", help="figures by name, with commas: B1,B3")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="sessions of `flat`, with commas")
    parser.add_argument("--fsync-ms", type=float, default=0.0, help="make each fsync of every Valkey so much longer")
    given = parser.parse_args(arguments)
    if given.fsync_ms:
        if shutil.which("cc") is None:
            parser.error("--fsync-ms needs a C compiler: apt-get install gcc libc6-dev")
        os.environ["FSYNC_EXTRA_US"] = str(int(given.fsync_ms * 1000))
    options = Options(given.seconds, given.rounds, frozenset(given.only.split(",")) - {""})
    sizes = tuple(int(size) for size in given.sizes.split(","))
    sets: dict[str, dict[str, Part]] = {
        "run": RUN,
        "peers": PEERS,
        "flat": {"flat cost": lambda asked: flat_figures(asked, sizes)},
        "spread": {"one server and three": spread_figures},
    }
    slower = f"-fsync-{given.fsync_ms:g}ms" if given.fsync_ms else ""
    return _measure(given.set + slower, sets[given.set], options)


def _measure(name: str, parts: dict[str, Part], options: Options) -> int:
    began, failed = time.monotonic(), 0
    scratch = HOME / "run"
    scratch.mkdir(parents=True, exist_ok=True)
    told = facts(scratch)
    figures: list[Figure] = []
    for title, part in parts.items():
        say(f"{title} ({time.monotonic() - began:.0f} s)")
        try:
            for figure in part(options):
                figures.append(figure)  # noqa: PERF402  kept one by one: the next may not be measurable
        except (DriverFailed, AssertionError) as error:
            failed = 1
            say(f"  not measured: {error}")
    told["seconds"] = round(time.monotonic() - began)
    if figures:
        write(name, figures, told)
    shutil.rmtree(scratch, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
