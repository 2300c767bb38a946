"""A reply is lost after its script ran: every process sends the call again, and nothing happens or is told twice."""

from __future__ import annotations

import signal
import time

import pytest

from ledger.config import RedisConfig
from ledger.errors import StoreUnavailable
from ledger.reconciliation import reconcile_mutation
from ledger.store import StoreSettings, SyncStore
from tests.faults.harness.losing import Bench, answered, journal, lose, plan, sid, verify
from tests.support.checker import read_ledger
from tests.support.direct import Direct
from tests.support.scripted import marker
from tests.support.wait import wait_until

CALL = ["tool_execution_started", "mutation_outcome", "tool_result"]
PLAN_OF_TWO = ["run_started", *CALL, *CALL, "run_completed"]
ASKED_AND_DONE = ["run_started", "approval_requested", "approval_decided", *CALL, "run_completed"]


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-26", "C-41", "C-55")
def test_replies_to_the_front_door(bench: Bench) -> None:
    api, door = bench.api, bench.door

    lose(bench, door, "admit_delivery", saying=b"\r\nnew\r\n")
    run = answered(lambda: api.trigger("admit", "d1", plan("admit"))).body
    api.ended(run["run_id"])
    assert journal(bench, run["run_id"]) == PLAN_OF_TWO
    verify(bench, "admit", {"completed": 2}, rows=2)

    run = api.trigger("decide", "d1", [("approved_pay", {"id": "decide"})]).body
    lose(bench, door, "decide_approval", saying=b"\r\ndecided\r\n")
    assert answered(lambda: api.approve(run["calls"][0]["approval_id"])).body["state"] == "approved"
    ended = api.ended(run["run_id"])
    assert journal(bench, run["run_id"]) == ASKED_AND_DONE
    verify(bench, "decide", {"completed": 1}, rows=1)

    metadata = {
        "session_id": "decide",
        "agent": "ops",
        "user": "dana",
        "delivery_id": "d1",
        "mutation_id": ended["calls"][0]["mutation_id"],
        "metadata": {"title": "a payment"},
    }
    lose(bench, door, "attach_metadata")
    assert answered(lambda: api.post("/api/mutation-metadata", metadata)).body["title"] == "a payment"
    verify(bench, "decide", {"completed": 1}, rows=2)

    run = api.trigger("cancel", "d1", [("approved_pay", {"id": "cancel"})]).body
    lose(bench, door, "cancel_run", saying=b"\r\ncancelled\r\n")
    cancelled = answered(lambda: api.post(f"/api/runs/{run['run_id']}/cancel"))
    assert cancelled.body["status"] == "cancelled"
    assert journal(bench, run["run_id"]) == ["run_started", "approval_requested", "approval_decided", "run_completed"]
    verify(bench, "cancel", {}, rows=0)
    assert door.lost == 4


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-24", "C-25", "C-30")
@pytest.mark.parametrize("script", ["claim_sessions", "settle_attempt", "renew_leases"])
def test_replies_to_a_worker(bench: Bench, script: str) -> None:
    says = {"claim_sessions": sid(script), "settle_attempt": b"\r\nsettled\r\n", "renew_leases": b""}
    lose(bench, bench.worker, script, saying=says[script])
    # So long that its lease must be renewed on the way.
    calls = plan(script, slow=3.3 if script == "renew_leases" else 0)
    run = bench.api.trigger(script, "d1", calls).body
    ended = bench.api.ended(run["run_id"])
    assert ended["status"] == "completed"
    assert journal(bench, run["run_id"]) == PLAN_OF_TWO
    verify(bench, script, {"completed": 2}, rows=2)
    assert bench.worker.lost == 1


@pytest.mark.acceptance
@pytest.mark.proves("C-05", "C-22")
def test_reply_to_a_begin(bench: Bench) -> None:
    # Admitted under another policy, so the worker resolves protection again and begins by itself.
    lose(bench, bench.worker, "begin_next", saying=b"begin-0")
    with Direct(bench.valkey.url, policy_digest="another") as direct:
        run = direct.admit("begin", "d1", plan("begin")).run
    bench.api.ended(run.run_id)
    assert journal(bench, run.run_id) == PLAN_OF_TWO
    verify(bench, "begin", {"completed": 2}, rows=2)
    assert bench.worker.lost == 1


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-23")
def test_reply_to_a_put_back(bench: Bench) -> None:
    late = bench.worker.hold_reply(marker("claim_sessions"), saying=sid("void"))
    lose(bench, bench.worker, "void_attempt", saying=b"\r\nvoided\r\n")
    run = bench.api.trigger("void", "d1", plan("void"), on_error="continue").body
    assert late.arrived.wait(10)
    too_late = time.monotonic() + 1.3
    wait_until(lambda: time.monotonic() > too_late, 5, "the checkpoint wait to pass")
    late.release()
    ended = bench.api.ended(run["run_id"])
    unconfirmed, fine = ended["calls"]
    assert unconfirmed["status"] == "not_executed", ended
    assert unconfirmed["refusal"]["code"] == "mutation_checkpoint_unavailable"
    assert fine["status"] == "completed"
    assert journal(bench, run["run_id"])[-1] == "run_failed"
    assert journal(bench, run["run_id"])[:-1] == PLAN_OF_TWO[:-1]
    verify(bench, "void", {"approved": 1, "completed": 1}, rows=2)
    assert [effect["id"] for effect in bench.stack.effects() if effect["id"].startswith("void")] == ["void-1"]
    assert bench.worker.lost == 1


@pytest.mark.acceptance
@pytest.mark.proves("C-23")
def test_a_begin_that_lands_after_its_put_back_is_refused(bench: Bench) -> None:
    held = bench.worker.hold_request(marker("begin_next"))
    with Direct(bench.valkey.url, policy_digest="another") as direct:
        run = direct.admit("late", "d1", plan("late"), on_error="continue").run
    assert held.arrived.wait(10)
    # The worker has put it back and gone on; only now its first begin reaches the store.
    ended = bench.api.ended(run.run_id)
    before = read_ledger(bench.valkey, ["late"])
    held.release()
    bench.api.ended(bench.api.trigger("late", "d2", plan("later")).body["run_id"])
    assert [call["status"] for call in ended["calls"]] == ["completed", "completed"]
    after = read_ledger(bench.valkey, ["late"])
    assert {key: after.entries[key] for key in before.entries} == before.entries
    verify(bench, "late", {"completed": 4}, rows=4)


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-33")
def test_reply_to_a_sweep(bench: Bench) -> None:
    with Direct(bench.valkey.url) as direct:
        run = direct.admit("sweep", "d1", plan("sweep"), on_error="continue").run
        lose(bench, bench.worker, "sweep_shard", saying=sid("sweep"))
        (dead,) = direct.claim("sweep", lease_ms=1)
    ended = bench.api.ended(run.run_id)
    assert dead.token
    assert [call["status"] for call in ended["calls"]] == ["outcome_unknown", "completed"]
    assert journal(bench, run.run_id)[:-1] == PLAN_OF_TWO[:-1]
    verify(bench, "sweep", {"outcome_unknown": 1, "completed": 1}, rows=2)
    assert bench.worker.lost == 1


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-33", "C-34")
def test_reply_to_a_release(bench: Bench) -> None:
    worker = bench.stack.workers[-1]
    run = bench.api.trigger("release", "d1", plan("release", slow=1.0)).body
    wait_until(lambda: any(effect["id"] == "release-0" for effect in bench.stack.effects()), 10, "the first effect")
    lose(bench, bench.worker, "release_sessions")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(15) == 0
    assert bench.worker.lost == 1
    bench.stack.add_worker(store_url=bench.worker.url)
    assert bench.api.ended(run["run_id"])["status"] == "completed"
    assert journal(bench, run["run_id"]) == PLAN_OF_TWO
    verify(bench, "release", {"completed": 2}, rows=2)


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-91")
def test_reply_to_a_reconciliation(bench: Bench) -> None:
    run = bench.api.trigger("reconcile", "d1", [("break_off", {"id": "reconcile"})]).body
    ended = bench.api.ended(run["run_id"])
    store = SyncStore(StoreSettings(RedisConfig(url=bench.door.url)))
    call = reconcile_mutation(
        "acme",
        "reconcile",
        ended["logical_turn_id"],
        ended["calls"][0]["mutation_id"],
        completed=True,
        by="test",
        shards=16,
    )
    lose(bench, bench.door, "reconcile_mutation", saying=b"\r\nreconciled\r\n")
    store.open()
    with pytest.raises(StoreUnavailable):
        store.run(call)
    again = store.run(call)
    store.close()
    assert (again.how, again.record["status"]) == ("repeated", "completed")
    verify(bench, "reconcile", {"completed": 1}, rows=2)
