"""Front doors and workers with different policies on one store: who is ready, and when (C-05)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.service import ASK, Bench, ServeProcess
from tests.support.stack import Api, Stack
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

OTHER = {"policy": {"mutation_tools": ["mcp__d__patch", "mcp__d__more"]}}


@pytest.mark.proves("C-05")
def test_a_front_door_with_another_policy_is_not_ready_and_says_why(make_bench: Callable[..., Bench]) -> None:
    one, other = make_bench(), make_bench(**OTHER)
    assert one.get("/readyz").status_code == 200
    reply = other.get("/readyz")
    problem = reply.get_json()
    assert (reply.status_code, problem["code"]) == (503, "policy_differs")
    assert problem["differences"] == ["mutation_tools.mcp__d__more: present here, absent there"]
    assert problem["differences"][0] in problem["detail"]
    assert int(reply.headers["Retry-After"]) > 0
    assert one.get("/readyz").status_code == 200
    # It works all the same: what it admits is resolved once more before it begins.
    assert other.trigger((ASK, {"n": 1}))["status"] == "waiting_for_approval"


@pytest.mark.proves("C-05")
def test_a_served_front_door_beats_and_says_goodbye(
    serve: Callable[..., ServeProcess], bench: Bench, store_url: str
) -> None:
    process = serve(**OTHER)
    members = _alive(store_url)
    wait_until(members, 10, "the front door to beat")
    assert bench.get("/readyz").status_code == 503
    process.stop()
    assert process.process.returncode == 0
    assert not [one for one in members() if one.split()[0] != bench.door.plugins.policy.digest]
    assert bench.get("/readyz").status_code == 200


def _alive(url: str) -> Callable[[], list[str]]:
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    return lambda: list(client.zrange("ml:{00}:policy:alive", 0, -1))


@pytest.mark.proves("C-05")
def test_a_worker_counts_and_says_what_differs(valkey: ValkeyProcess, tmp_path: Path) -> None:
    client: Any = valkey.client(decode_responses=True)
    one = Stack(tmp_path / "one", valkey.url, "[workers]\nlinger_seconds = 1.0\n")
    other = Stack(tmp_path / "other", valkey.url, '[policy]\nmutation_tools = ["mcp__x__y"]\n')
    try:
        one.add_worker()
        wait_until(lambda: client.zcard("ml:{00}:policy:alive") == 1, 10, "the worker to beat")
        door = other.add_front_door(ready=False)
        wait_until(lambda: _status(door) == 503, 20, "the other front door to refuse to be ready")
        assert door.get("/readyz").body["code"] == "policy_differs"
        other.add_worker()
        wait_until(lambda: "mutation_tools.mcp__x__y" in other.logs(), 10, "the other worker to warn")
        one.stop()
        wait_until(lambda: _status(door) == 200, 20, "the other front door to take over")
    finally:
        other.stop()
        one.stop()


def _status(api: Api) -> int:
    try:
        return api.get("/readyz").status
    except OSError:
        return 0
