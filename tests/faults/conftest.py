"""Fixtures of the fault tests: a stack whose front door and worker reach the store through proxies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.faults.harness.losing import ERASER, Bench, asleep
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess

MAY_ERASE = f"""
[[tokens]]
name = "eraser"
tenant = "acme"
roles = ["erase"]
sha256 = "{hashlib.sha256(ERASER.encode()).hexdigest()}"
"""


@pytest.fixture(scope="module")
def stack_behind_proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One front door and one worker for all tests here; checkpoints are late soon."""
    folder = tmp_path_factory.mktemp("lost-replies")
    valkey = ValkeyProcess(folder / "valkey")
    config = native_section() + quick_section(lease=6.0, linger=0.3, checkpoint_wait_seconds=1.0) + MAY_ERASE
    with (
        valkey.serving(),
        TcpProxy(valkey.port) as door,
        TcpProxy(valkey.port) as worker,
        Stack(folder / "stack", valkey.url, config) as stack,
    ):
        api = stack.add_front_door(store_url=door.url)
        stack.add_worker(store_url=worker.url)
        yield Bench(valkey, stack, api, door, worker)


@pytest.fixture
def bench(stack_behind_proxies: Bench) -> Bench:
    """The stack, with no fault left over from another test, and the worker asleep."""
    bench = stack_behind_proxies
    for proxy in (bench.door, bench.worker):
        proxy.disarm()
        proxy.lost = 0
    asleep(bench)
    return bench
