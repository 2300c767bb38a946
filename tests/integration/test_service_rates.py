"""Requests a second of a token: counted over all front doors, refused with a time to come back (C-71)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.config import Config
from ledger.config.sections import Role
from ledger.tokens import Principal
from service.rates import RateLimited, RateLimits
from tests.support.casework import untouched
from tests.support.service import AUTO, Bench, plan
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

OUTCOMES = "/api/mutation-outcomes?session_id=s1"


def _principal(name: str, tenant: str = "acme") -> Principal:
    return Principal(name, tenant, frozenset({Role.READ}), None, act_for_users=False)


@pytest.mark.proves("C-71")
def test_a_token_has_so_many_over_all_front_doors_and_others_have_theirs(make_bench: Callable[..., Bench]) -> None:
    # One in 30 s, so that no window ends in the middle of the test.
    one, two = (make_bench(service={"rate_limit_per_second": 1 / 30}) for _ in range(2))
    assert one.get(OUTCOMES).status_code == 200
    for bench in (one, two):
        reply = bench.get(OUTCOMES)
        assert (reply.status_code, reply.get_json()["code"]) == (429, "rate_limited")
        assert 1 <= int(reply.headers["Retry-After"]) <= 60
    assert two.get(OUTCOMES, as_="other").status_code == 200
    # Refused before anything is read or written, whatever is asked for.
    refused = one.post("/api/trigger", plan((AUTO, {"n": 1})))
    assert (refused.status_code, refused.get_json()["code"]) == (429, "rate_limited")
    assert one.get("/api/approvals", as_="bob").get_json()["approvals"] == []
    # What needs no token is not counted.
    assert {one.get(path).status_code for path in ("/livez", "/readyz", "/openapi.json")} == {200}


@pytest.mark.proves("C-71")
def test_a_window_ends(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(service={"rate_limit_per_second": 2})
    statuses = [bench.get(OUTCOMES).status_code for _ in range(6)]
    assert {200, 429} == set(statuses)
    wait_until(lambda: bench.get(OUTCOMES).status_code == 200, 5, "the next window")


def test_without_the_setting_nothing_is_counted(bench: Bench) -> None:
    with untouched(bench):
        assert {bench.get(OUTCOMES).status_code for _ in range(30)} == {200}


@pytest.mark.proves("C-26")
def test_a_store_that_is_away_says_so_itself(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(f"redis://127.0.0.1:{free_port()}/0", service={"rate_limit_per_second": 1})
    for _ in range(3):
        reply = bench.get(OUTCOMES)
        assert (reply.status_code, reply.get_json()["code"]) == (503, "store_unavailable")


def test_names_of_two_tenants_are_two_tokens(store_url: str) -> None:
    limits = RateLimits(store_url, 1 / 30)
    limits.check(_principal("a"))
    limits.check(_principal("a", "umbrella"))
    with pytest.raises(RateLimited, match="1 per 30 second"):
        limits.check(_principal("a"))


def test_a_store_behind_a_socket(tmp_path: Path) -> None:
    server = ValkeyProcess(tmp_path / "v", unix_socket=tmp_path / "s").start()
    try:
        limits: Any = RateLimits(server.url, 1 / 30)
        limits.check(_principal("a"))
        with pytest.raises(RateLimited):
            limits.check(_principal("a"))
    finally:
        server.stop()


def test_the_setting_is_a_positive_number() -> None:
    for wrong in (0, -1, True, "fast"):
        with pytest.raises(ValueError, match="rate_limit_per_second"):
            Config.model_validate({"service": {"rate_limit_per_second": wrong}})
