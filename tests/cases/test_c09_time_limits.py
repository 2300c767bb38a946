"""C09: the product's own deadline decides, on its own clock; a time limit of the job queue meets no tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.adapters.rq_wake import JOB, RqWaker
from tests.support.casework import CaseStack
from tests.support.stack import Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until


@pytest.mark.proves("C-51", "C-54")
def test_a_deadline_holds_while_other_code_keeps_the_loop_busy(valkey: ValkeyProcess, tmp_path: Path) -> None:
    """(b) host code blocks the loop in slices of 200 ms"""
    # With the usual lease: a short one could not be renewed by such a loop, and no call would be let out.
    with Stack(tmp_path / "stack", valkey.url, '[plugins]\nmodules = ["tests.support.case_tools"]\n') as stack:
        api = stack.add_front_door()
        stack.add_worker()
        busy = api.trigger("c09-busy", "d1", [("case_busy", {"gate": "c09-busy"})]).body
        held = [("case_held", {"case": "c09", "gate": "c09"})]
        # Every turn of the loop takes 200 ms here, on the way to the tool too.
        run = api.trigger("c09", "d1", held, deadline_seconds=10.0).body
        ended = api.ended(run["run_id"], 40)
        assert api.run(busy["run_id"])["status"] == "running"
        assert ended["calls"][0]["status"] == "outcome_unknown"
        assert ended["calls"][0]["outcome"]["reason"] == "execution_timeout"
        for gate in ("c09", "c09-busy"):
            (stack.directory / f"gate-{gate}").touch()
        assert api.ended(busy["run_id"])["status"] == "completed"
        # What came after the deadline is not told as a success.
        assert api.run(run["run_id"]) == ended


@pytest.mark.proves("C-51", "C-54")
def test_code_that_swallows_every_exception_outlives_no_deadline(cases: CaseStack) -> None:
    """(c) the tool catches whatever ends it, and reports a success later"""
    deaf = [("case_deaf", {"case": "c09-deaf", "gate": "c09-deaf"})]
    run = cases.api.trigger("c09-deaf", "d1", deaf, deadline_seconds=3.0).body
    ended = cases.api.ended(run["run_id"])
    call = ended["calls"][0]
    assert (call["status"], call["outcome"]["reason"]) == ("outcome_unknown", "execution_timeout")
    cases.open_gate("c09-deaf")
    wait_until(lambda: cases.effects(word="late success"), 10, "the tool to end all the same")
    assert cases.api.run(run["run_id"]) == ended
    assert cases.api.outcomes("c09-deaf") == [call["outcome"]]


@pytest.mark.proves("C-31")
@pytest.mark.parametrize("fault", ["wake.heard:1:sleep=2500", "wake.heard:1:sleep=2500,settle.asked:1:sleep=1000"])
def test_the_queue_s_alarm_meets_no_tool(valkey: ValkeyProcess, tmp_path: Path, fault: str) -> None:
    """(a) and (d): RQ's limit of one second fires while a tool runs, and while its outcome is being written."""
    config = native_section() + quick_section()
    with Stack(tmp_path / "stack", valkey.url, config, env={"MUTATION_LEDGER_FAULT": fault}) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        queue = RqWaker(valkey.url)._open()
        job = queue.enqueue(JOB, False, job_timeout=1)
        run = api.trigger("c09", "d1", [("pay_slowly", {"id": "c09", "after": 2.0})]).body
        wait_until(lambda: job.get_status(refresh=True) == "failed", 20, "RQ's alarm")
        ended = api.ended(run["run_id"])
        assert (ended["status"], ended["calls"][0]["status"]) == ("completed", "completed")
        assert len(stack.effects()) == 1
        queue.connection.close()
