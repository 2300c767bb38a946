"""C20: the store takes no writes for a while: nothing new is sent, a result is kept and told later, none is redone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.checker import check, read_ledger
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import passed, wait_until

AWAY_SECONDS = 20.0 if os.environ.get("MUTATION_LEDGER_TESTS") == "long" else 2.5
CONFIG = native_section() + quick_section(lease=4.0, checkpoint_wait_seconds=1.0, settlement_wait_seconds=1.0)
Trouble = Callable[[ValkeyProcess], Any]


@contextmanager
def _misconf(valkey: ValkeyProcess) -> Iterator[None]:
    """A snapshot that fails while such a failure stops writes: MISCONF."""
    client: Any = valkey.client()
    in_its_place = valkey.directory / "dump.rdb"
    in_its_place.mkdir()
    client.config_set("save", "3600 100000000")
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 10, "the snapshot to fail")
    yield
    client.config_set("save", "")
    in_its_place.rmdir()


@contextmanager
def _out_of_memory(valkey: ValkeyProcess) -> Iterator[None]:
    client: Any = valkey.client()
    client.config_set("maxmemory", "1mb")
    yield
    client.config_set("maxmemory", 0)


@contextmanager
def _read_only(valkey: ValkeyProcess) -> Iterator[None]:
    client: Any = valkey.client()
    client.replicaof("127.0.0.1", 1)
    yield
    client.replicaof("NO", "ONE")


TROUBLES: tuple[Trouble, ...] = (_misconf, _out_of_memory, _read_only)


def _refused(api: Api) -> bool:
    reply = api.trigger("c20-other", "d1", [("pay", {"id": "c20-other"})])
    return reply.status == 503 and "Retry-After" in reply.headers


def _away(api: Api) -> None:
    """The whole time of trouble, in which the front door refuses with a time to come back."""
    over = passed(AWAY_SECONDS)
    wait_until(lambda: _refused(api), 5, "the front door to refuse")
    wait_until(over, AWAY_SECONDS + 5, "the trouble to last")
    assert _refused(api)


@pytest.mark.acceptance
@pytest.mark.proves("C-24", "C-26")
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.__name__.strip("_"))
def test_while_the_tool_is_running(valkey: ValkeyProcess, tmp_path: Path, trouble: Trouble) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        calls = [("pay_slowly", {"id": f"c20-{number}", "after": 0.6}) for number in range(2)]
        run = api.trigger("c20", "d1", calls).body
        wait_until(stack.effects, 20, "the tool to be entered")
        with trouble(valkey):
            _away(api)
            # The first one's result waits for the store; the second one was not begun on it.
            assert [effect["id"] for effect in stack.effects()] == ["c20-0"]
        ended = api.ended(run["run_id"], timeout=40)
        first, second = (call["status"] for call in ended["calls"])
        assert first in ("completed", "outcome_unknown")
        # Not executed: its intent was asked for just then, and could not be confirmed.
        assert second in ("completed", "skipped", "not_executed")
        # What was refused meanwhile is taken now, under the same delivery id.
        after = api.trigger("c20-other", "d1", [("pay", {"id": "c20-other"})], wait=30)
        assert after.status == 200
        # On a busy machine an intent may come too late even now.
        assert after.body["calls"][0]["status"] in ("completed", "not_executed")
        found = read_ledger(valkey, ["c20", "c20-other"])
        check(stack.effects(), found)
        assert first == "completed" or AWAY_SECONDS > 4.0


@pytest.mark.acceptance
@pytest.mark.proves("C-24", "C-26", "C-33")
@pytest.mark.parametrize("trouble", TROUBLES[1:2], ids=lambda one: one.__name__.strip("_"))
def test_while_the_tool_is_running_and_the_worker_ends_first(
    valkey: ValkeyProcess, tmp_path: Path, trouble: Trouble
) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        api = stack.add_front_door()
        worker = stack.add_worker()
        run = api.trigger("c20-dies", "d1", [("pay_slowly", {"id": "c20-dies", "after": 0.6})]).body
        wait_until(stack.effects, 20, "the tool to be entered")
        with trouble(valkey):
            wait_until(lambda: '"report_waits"' in stack.logs(), 15, "the report to wait")
            stack.kill(worker)
        stack.add_worker()
        assert api.ended(run["run_id"], timeout=40)["calls"][0]["status"] == "outcome_unknown"
        assert len(stack.effects()) == 1
        check(stack.effects(), read_ledger(valkey, ["c20-dies"]))


def _ended(stack: Stack, api: Api, run_id: str) -> bool:
    """Whether the run has ended. A worker that could not begin ends with one clear line: then it is started again."""
    if all(worker.poll() is not None for worker in stack.workers):
        stack.add_worker(wait=False)
    return api.get(f"/api/runs/{run_id}").body["status"] in ("completed", "failed", "cancelled")


@pytest.mark.acceptance
@pytest.mark.proves("C-23", "C-26")
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.__name__.strip("_"))
def test_before_anything_was_sent(valkey: ValkeyProcess, tmp_path: Path, trouble: Trouble) -> None:
    """What is queued when it begins is not sent until it is over, and needs nobody to repair anything."""
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        api = stack.add_front_door()
        queued = [api.trigger(f"c20-{number}", "d1", [("pay", {"id": f"q-{number}"})]).body for number in range(3)]
        with trouble(valkey):
            stack.add_worker(wait=False)
            _away(api)
            assert stack.effects() == []
        for run in queued:
            wait_until(lambda run=run: _ended(stack, api, run["run_id"]), 40, "the run to end")  # type: ignore[misc]  # bound
            assert api.ended(run["run_id"])["status"] == "completed"
        check(stack.effects(), read_ledger(valkey, [f"c20-{number}" for number in range(3)]))
