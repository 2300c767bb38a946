"""Requests a second of a token: counted over all front doors, refused with a time to come back (C-71)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.connection import SSLConnection

from ledger.config import Config
from ledger.config.sections import Role
from ledger.errors import ConfigError
from ledger.store.placement import Placement
from ledger.tokens import Principal
from service import rates
from service.rates import RateLimited, RateLimits
from tests.support.casework import untouched
from tests.support.cluster import ValkeyCluster
from tests.support.sentinel import sentinel_of
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


def _refused(limits: RateLimits, name: str = "a") -> bool:
    try:
        limits.check(_principal(name))
    except RateLimited:
        return True
    return False


@pytest.mark.proves("C-71")
def test_a_cluster_counts_on_one_server_also_after_it_was_gone(tmp_path: Path) -> None:
    with ValkeyCluster(tmp_path) as cluster:
        one, two = (RateLimits(cluster.url, 1 / 30) for _ in range(2))
        names = ["ada", "bo", "cyd", "dana", "eve", "fay", "gus", "hal", "ivy"]
        assert [_refused(one, name) for name in names] == [False] * 9
        assert [_refused(two, name) for name in names] == [True] * 9
        keys = cluster.keys("*")
        assert {key.partition(b"{")[0] for key in keys} == {b"ml-rate:"}
        (holder,) = [server for server in cluster.masters if server.client().dbsize()]
        holder.kill9()
        assert not _refused(one, names[0])
        holder.restart()
        wait_until(lambda: _refused(one, names[0]), 20, "the cluster to count again")


@pytest.mark.proves("C-71")
def test_a_store_behind_sentinel(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with sentinel_of(valkey, tmp_path) as url:
        limits = RateLimits(f"{url}/main/2", 1 / 30)
        wait_until(lambda: _refused(limits), 20, "Sentinel")
    client: Any = valkey.client()
    assert set(client.info("keyspace")) == {"db2"}


@pytest.mark.proves("C-26", "C-71")
@pytest.mark.parametrize(
    "scheme", ["redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"]
)
def test_whatever_is_away_lets_requests_pass(scheme: str) -> None:
    limits = RateLimits(f"{scheme}://127.0.0.1:{free_port()}/{'main' if 'sentinel' in scheme else ''}", 1 / 30)
    for _ in range(3):
        limits.check(_principal("a"))


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_the_server_that_was_named_is_reached_over_tls_with_the_store_s_login(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = Placement(((0, 16_383, ("10.0.0.7", 7007)),))
    monkeypatch.setattr(rates, "place", lambda _: placed)
    limits: Any = RateLimits(f"rediss+{kind}://me:p%40ss@one:1,two:2/main?ssl_cert_reqs=none", 1)
    pool = limits._connected().storage.storage.connection_pool
    named = {name: pool.connection_kwargs[name] for name in ("host", "port", "username", "password", "ssl_cert_reqs")}
    assert pool.connection_class is SSLConnection
    assert named == {"host": "10.0.0.7", "port": 7007, "username": "me", "password": "p@ss", "ssl_cert_reqs": "none"}


@pytest.mark.parametrize(
    "url",
    ["redis+sentinel://one:1", "redis+cluster://one", "rediss://one:99999", "redis://one:1/0?socket_timeout=soon"],
)
def test_an_address_that_cannot_be_used_is_found_at_start(url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis\.url is not usable: "):
        RateLimits(url, 1)


def test_the_setting_is_a_positive_number() -> None:
    for wrong in (0, -1, True, "fast"):
        with pytest.raises(ValueError, match="rate_limit_per_second"):
            Config.model_validate({"service": {"rate_limit_per_second": wrong}})
