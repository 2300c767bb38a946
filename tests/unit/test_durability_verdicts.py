"""Durability verdicts by value: what a server says of itself, and what that is worth in each mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.config import Durability, RedisConfig
from ledger.durability import COMMANDS, Level, StoreFacts, Verdict, facts_from, judge, require
from ledger.errors import StoreUnavailable, StoreUnsafe

INFO = {
    "valkey_version": "9.1.2",
    "redis_version": "7.2.4",
    "run_id": "abc",
    "role": "master",
    "loading": "0",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "connected_slaves": "0",
    "maxmemory_policy": "noeviction",
}
SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "aof-use-rdb-preamble": "no",
    "auto-aof-rewrite-min-size": str(1 << 30),
}
GOOD = StoreFacts(INFO, SAFE, waitaof=True)
REDIS_70 = StoreFacts(
    {key: value for key, value in INFO.items() if key != "valkey_version"} | {"redis_version": "7.0.15"},
    SAFE,
    waitaof=False,
)


def mode(durability: Durability = Durability.VERIFIED, **more: Any) -> RedisConfig:
    """The `[redis]` section in one durability mode."""
    return RedisConfig(durability=durability, **more)


def with_config(**changes: str) -> StoreFacts:
    """GOOD with other settings; names with _ for -."""
    return replace(GOOD, config=SAFE | {key.replace("_", "-"): value for key, value in changes.items()})


def with_info(facts: StoreFacts = GOOD, **changes: str) -> StoreFacts:
    """`facts` with other INFO fields."""
    return replace(facts, info={**facts.info, **changes})


def levels(facts: StoreFacts, settings: RedisConfig) -> dict[str, Level]:
    """The findings' levels by name, without those that are ok."""
    return {f.name: f.verdict for f in judge(facts, settings).findings if f.verdict is not Level.OK}


@pytest.mark.proves("C-20", "C-21")
@pytest.mark.parametrize(
    ("durability", "verdict"),
    [
        (Durability.VERIFIED, Verdict.VERIFIED),
        (Durability.ALWAYS, Verdict.VERIFIED),
        (Durability.EXTERNAL, Verdict.ATTESTED),
    ],
)
def test_a_good_server_in_each_mode(durability: Durability, verdict: Verdict) -> None:
    report = require(GOOD, mode(durability))
    assert report.verdict is verdict
    assert {finding.verdict for finding in report.findings} == {Level.OK}
    assert report.error() is None


@pytest.mark.proves("C-20", "C-21")
@pytest.mark.parametrize("durability", [Durability.VERIFIED, Durability.ALWAYS])
@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("appendonly", "no", "yes"),
        ("appendfsync", "everysec", "always"),
        ("appendfsync", "no", "always"),
        ("no_appendfsync_on_rewrite", "yes", "no"),
        ("maxmemory_policy", "allkeys-lru", "noeviction"),
        ("maxmemory_policy", "volatile-lru", "noeviction"),
        ("maxmemory_policy", "volatile-ttl", "noeviction"),
    ],
)
def test_one_unsafe_setting_is_refused_by_name_with_its_fix(
    durability: Durability, setting: str, value: str, wanted: str
) -> None:
    name = setting.replace("_", "-")
    with pytest.raises(StoreUnsafe) as caught:
        require(with_config(**{setting: value}), mode(durability))
    line = str(caught.value)
    assert "\n" not in line
    assert f"{name} is {value}" in line
    assert f"fix: `{name} {wanted}` in the server's configuration" in line
    assert judge(with_config(**{setting: value}), mode(durability)).verdict is Verdict.UNSAFE


@pytest.mark.proves("C-21")
def test_allow_ephemeral_lets_an_unsafe_store_pass_but_not_look_safe() -> None:
    report = require(with_config(appendonly="no"), mode(allow_ephemeral=True))
    assert report.verdict is Verdict.UNSAFE


@pytest.mark.proves("C-21")
def test_a_replica_is_refused_in_every_mode() -> None:
    for durability in Durability:
        with pytest.raises(StoreUnsafe, match=r"role is slave; fix: point redis\.url at the primary"):
            require(with_info(role="slave"), mode(durability))


@pytest.mark.proves("C-21")
@pytest.mark.parametrize(
    ("version", "able"),
    [("7.0.15", False), ("6.2.1", False), ("7.2.0", True), ("7.4.1", True), ("8.0.0", True)],
)
def test_waitaof_is_told_by_version_when_the_server_would_not_say(version: str, able: bool) -> None:
    facts = replace(with_info(REDIS_70, redis_version=version), waitaof=None)
    assert (judge(facts, mode()).verdict is Verdict.VERIFIED) is able


@pytest.mark.proves("C-21")
def test_old_redis_is_refused_in_verified_mode_and_the_fix_names_the_other_mode() -> None:
    with pytest.raises(StoreUnsafe, match=r'Redis 7\.0\.15 has no WAITAOF; fix: .*redis\.durability = "always"$'):
        require(REDIS_70, mode())
    assert judge(REDIS_70, mode(Durability.ALWAYS)).verdict is Verdict.VERIFIED


@pytest.mark.proves("C-21")
def test_the_other_mode_is_not_offered_where_replicas_must_confirm() -> None:
    (finding,) = (f for f in judge(REDIS_70, mode(aof_replicas=1)).findings if f.name == "version")
    assert "always" not in finding.fix


@pytest.mark.proves("C-21")
def test_forbidden_config_can_only_be_attested() -> None:
    facts = replace(GOOD, config=None)
    for durability in (Durability.VERIFIED, Durability.ALWAYS):
        with pytest.raises(StoreUnsafe, match=r'CONFIG GET is forbidden.*redis\.durability = "external"'):
            require(facts, mode(durability))
    assert require(facts, mode(Durability.EXTERNAL)).verdict is Verdict.ATTESTED


@pytest.mark.proves("C-21")
def test_attesting_does_not_cover_eviction_or_a_full_aof_disk_of_the_other_modes() -> None:
    managed = replace(GOOD, config=None)
    assert levels(with_info(managed, maxmemory_policy="allkeys-lru"), mode(Durability.EXTERNAL)) == {
        "maxmemory-policy": Level.BAD
    }
    silent = replace(managed, info={"role": "master"})
    assert levels(silent, mode(Durability.EXTERNAL)) == {"maxmemory-policy": Level.WARN}
    assert levels(silent, mode())["maxmemory-policy"] is Level.BAD


@pytest.mark.proves("C-26")
@pytest.mark.parametrize(
    ("facts", "replicas", "part"),
    [
        (with_info(loading="1"), 0, "the server is loading its data; fix: wait"),
        (with_info(aof_last_write_status="err"), 0, r"the last AOF write failed \(err\); fix: make room"),
        (with_info(connected_slaves="1"), 2, "aof_replicas = 2, 1 connected; fix: bring the replicas back"),
    ],
)
def test_what_may_pass_by_itself_is_unavailable_not_unsafe(facts: StoreFacts, replicas: int, part: str) -> None:
    with pytest.raises(StoreUnavailable, match=part):
        require(facts, mode(aof_replicas=replicas))
    assert judge(facts, mode(aof_replicas=replicas)).verdict is Verdict.UNSAFE


def test_a_lasting_fault_is_told_before_a_passing_one() -> None:
    facts = replace(with_info(loading="1"), config=SAFE | {"appendfsync": "no"})
    with pytest.raises(StoreUnsafe, match=r"appendfsync is no.*\(and 1 more, see `mutation-ledger doctor`\)"):
        require(facts, mode())


@pytest.mark.proves("C-27")
def test_more_replicas_than_confirm_are_pointed_out() -> None:
    facts = with_info(connected_slaves="2")
    (finding,) = (f for f in judge(facts, mode(aof_replicas=1)).findings if f.name == "aof_replicas")
    assert finding.verdict is Level.WARN
    assert finding.fix == "set redis.aof_replicas = 2 if any of them can be promoted"
    assert levels(facts, mode(aof_replicas=2)) == {}


@pytest.mark.proves("C-84")
def test_the_rdb_preamble_is_advice_not_refusal() -> None:
    facts = with_config(aof_use_rdb_preamble="yes", auto_aof_rewrite_min_size=str(64 << 20))
    assert levels(facts, mode()) == {
        "aof-use-rdb-preamble": Level.WARN,
        "auto-aof-rewrite-min-size": Level.WARN,
    }
    assert judge(facts, mode()).verdict is Verdict.VERIFIED


def test_raw_and_parsed_replies_give_the_same_facts() -> None:
    text = "# Server\r\n" + "".join(f"{key}:{value}\r\n" for key, value in INFO.items())
    raw = [text.encode(), [1, 0], *([name.encode(), value.encode()] for name, value in SAFE.items())]
    parsed: list[object] = [INFO, [1, 0], *({name.encode(): value.encode()} for name, value in SAFE.items())]
    assert len(raw) == len(COMMANDS)
    assert facts_from(raw) == facts_from(parsed) == GOOD
    assert GOOD.run_id == "abc"


@pytest.mark.parametrize(
    ("reply", "waitaof"),
    [
        ([0, 0], True),
        (RuntimeError("unknown command 'WAITAOF', with args beginning with: '0'"), False),
        (RuntimeError("WAITAOF cannot be used with replica instances."), True),
        (RuntimeError("NOPERM this user has no permissions"), None),
    ],
)
def test_waitaof_is_told_by_asking(reply: object, waitaof: bool | None) -> None:
    settings = [[name, value] for name, value in SAFE.items()]
    assert facts_from([INFO, reply, *settings]).waitaof is waitaof


def test_one_forbidden_setting_makes_the_settings_unknown() -> None:
    settings: list[object] = [[name, value] for name, value in SAFE.items()]
    settings[3] = RuntimeError("NOPERM")
    assert facts_from([INFO, [0, 0], *settings]).config is None
