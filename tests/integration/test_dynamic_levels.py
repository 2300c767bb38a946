"""A host's function decides per call who is asked, at the front door and once more in the worker (C-05, C-07)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.case_tools import BY_AMOUNT
from tests.support.casework import untouched
from tests.support.service import Bench, plan
from tests.support.stack import APPROVER, Stack
from tests.support.valkey import ValkeyProcess

PLUGIN = {"modules": ["tests.support.case_tools"]}


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A front door with the plugin."""
    return make_bench(plugins=PLUGIN)


@pytest.mark.proves("C-07")
@pytest.mark.parametrize(
    ("amount", "status", "level"),
    [(10, "queued", None), (11, "waiting_for_approval", "approve"), (101, "waiting_for_approval", "confirm")],
)
def test_the_arguments_decide_and_the_call_is_protected_anyway(
    bench: Bench, amount: int, status: str, level: str | None
) -> None:
    call = bench.trigger((BY_AMOUNT, {"amount": amount}))["calls"][0]
    assert (call["status"], call["protected"]) == (status, True)
    asked = bench.get("/api/approvals", as_="bob").get_json()["approvals"]
    assert [row["level"] for row in asked] == ([level] if level else [])


@pytest.mark.proves("C-07")
@pytest.mark.parametrize("arguments", [{}, {"amount": "many"}, {"amount": None}])
def test_without_an_answer_nothing_is_admitted(bench: Bench, arguments: dict[str, Any]) -> None:
    with untouched(bench):
        reply = bench.post("/api/trigger", plan((BY_AMOUNT, arguments)))
    assert (reply.status_code, reply.get_json()["code"]) == (500, "internal_error")
    assert "amount" not in reply.text


@pytest.mark.proves("C-07")
def test_configuration_overrides_what_the_plugin_says(make_bench: Callable[..., Bench]) -> None:
    rule = {"name": "all", "tool": BY_AMOUNT, "when": {"/amount": {"le": 1000}}}
    bench = make_bench(plugins=PLUGIN, policy={"auto_approve": [rule]})
    assert bench.trigger((BY_AMOUNT, {"amount": 101}))["calls"][0]["status"] == "queued"


@pytest.fixture
def two_policies(valkey: ValkeyProcess, tmp_path: Path) -> Iterator[tuple[Stack, Any]]:
    """A front door and a worker whose configurations differ, so that the worker resolves every call again."""
    plugin = '[plugins]\nmodules = ["tests.support.case_tools"]\n'
    door = Stack(tmp_path / "door", valkey.url, plugin)
    worker = Stack(tmp_path / "worker", valkey.url, plugin + '[policy]\nmutation_tools = ["mcp__x__y"]\n')
    api = door.add_front_door(ready=False)
    worker.add_worker()
    yield worker, api
    door.stop()
    worker.stop()


@pytest.mark.proves("C-05", "C-07")
def test_the_worker_decides_by_the_same_arguments(two_policies: tuple[Stack, Any]) -> None:
    worker, api = two_policies
    free = api.trigger("s1", "d1", [(BY_AMOUNT, {"amount": 5})], wait=20).body
    assert free["status"] == "completed"
    asked = api.trigger("s1", "d2", [(BY_AMOUNT, {"amount": 50})]).body
    assert api.approve(asked["calls"][0]["approval_id"]).status == 200
    # One yes is enough: the worker asks for no more than the door did.
    assert api.ended(asked["run_id"])["status"] == "completed"
    large = api.trigger("s1", "d3", [(BY_AMOUNT, {"amount": 500})]).body
    path = f"/api/approvals/{large['calls'][0]['approval_id']}"
    assert api.as_(APPROVER).post(path, {"decision": "approve"}).status == 422
    assert api.as_(APPROVER).post(path, {"decision": "approve", "confirm": BY_AMOUNT}).status == 200
    assert api.ended(large["run_id"])["status"] == "completed"
    assert [line["arguments"]["amount"] for line in worker.effects()] == [5, 50, 500]
    assert "session_path_failed" not in worker.logs()
