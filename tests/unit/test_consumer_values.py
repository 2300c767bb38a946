"""The consumer's decisions by value: gaps, plans, cursors, stream entries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import MovedError, ResponseError

from ledger.config import RedisConfig
from ledger.consumer import Cursors, GapReason, OutcomeConsumer
from ledger.consumer.cursors import id_key
from ledger.consumer.keys import sessions_key, shard_and_tenant
from ledger.consumer.links import MARGIN_SECONDS, connection_kwargs
from ledger.consumer.outcome import FIELDS, from_stream
from ledger.consumer.plan import checked, owner_of, plan_groups
from ledger.consumer.reading import ShardRead, find_gap, next_position, parse_read, read_commands
from ledger.errors import ConfigError, StoreError, StoreUnavailable
from ledger.store import StoreSettings

VALUES = [b"acme", b"s1", b"00turn", b"ab" * 32, b"7", b'{"status":"completed"}']


def entry(stream_id: bytes = b"5-0", names: list[bytes] = FIELDS, values: list[bytes] = VALUES) -> list[Any]:
    return [stream_id, [part for pair in zip(names, values, strict=True) for part in pair]]


def read(**changes: Any) -> ShardRead:
    fields: dict[str, Any] = {"floor": None, "store_id": "store", "last_id": None, "entries": ()}
    return ShardRead(shard=3, **{**fields, **changes})


@pytest.mark.proves("C-111")
@pytest.mark.parametrize(
    ("position", "answer", "fresh", "reason"),
    [
        ("10-0", {}, False, None),
        ("10-0", {"floor": "9-9"}, False, None),
        ("10-0", {"floor": "10-0"}, False, None),
        ("10-0", {"floor": "10-1"}, False, GapReason.TRIMMED),
        ("9-5", {"floor": "10-0"}, False, GapReason.TRIMMED),
        ("0-0", {"floor": "1-0"}, False, GapReason.TRIMMED),
        ("0-0", {"floor": "1-0"}, True, None),
        ("10-0", {"last_id": "10-0"}, False, None),
        ("10-0", {"last_id": "9-9"}, False, GapReason.WENT_BACK),
        ("10-0", {"last_id": "0-0"}, False, GapReason.WENT_BACK),
        ("10-0", {"store_id": "other"}, False, GapReason.STORE_CHANGED),
        ("10-0", {"store_id": None}, False, GapReason.STORE_CHANGED),
        ("0-0", {"store_id": "other"}, False, GapReason.STORE_CHANGED),
        ("0-0", {"store_id": None}, False, None),
    ],
)
def test_a_gap_is_found_where_there_is_one_and_nowhere_else(
    position: str, answer: dict[str, str], fresh: bool, reason: GapReason | None
) -> None:
    gap = find_gap(read(**answer), position, "store", fresh=fresh)
    assert (gap.reason if gap else None) == reason
    if gap is not None:
        assert (gap.shard, gap.cursor, gap.code, gap.retryable) == (3, position, "cursor_gap", False)


def test_reading_goes_on_after_the_last_entry_or_at_the_floor() -> None:
    assert next_position(read(entries=[entry(b"11-0"), entry(b"12-3")], floor="20-0"), "10-0") == "12-3"
    assert next_position(read(floor="20-0"), "0-0") == "20-0"
    assert next_position(read(floor="9-0"), "10-0") == "10-0"
    assert next_position(read(), "10-0") == "10-0"


@given(st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)), st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)))
def test_stream_ids_compare_as_numbers(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (id_key(f"{one[0]}-{one[1]}") < id_key(f"{other[0]}-{other[1]}")) == (one < other)


def test_entries_are_read_by_name_whatever_their_order_and_company() -> None:
    (plain,) = from_stream(3, [entry()], None)
    assert plain.record == {"status": "completed"}
    assert (plain.tenant, plain.session_id, plain.logical_turn_id) == ("acme", "s1", "00turn")
    assert (plain.mutation_id, plain.mutation_revision, plain.shard, plain.stream_id) == ("ab" * 32, 7, 3, "5-0")
    strange = entry(names=[b"extra", *FIELDS[::-1]], values=[b"1", *VALUES[::-1]])
    assert from_stream(3, [strange], None) == [plain]


def test_other_tenants_are_left_out() -> None:
    mine, theirs = entry(b"5-0"), entry(b"6-0", values=[b"evil", *VALUES[1:]])
    assert [outcome.stream_id for outcome in from_stream(0, [mine, theirs], b"acme")] == ["5-0"]
    assert len(from_stream(0, [mine, theirs], None)) == 2


@pytest.mark.parametrize(
    "bad",
    [
        entry(values=[*VALUES[:5], b'{"secret'])[1],
        entry(values=[*VALUES[:4], b"seven", VALUES[5]])[1],
        entry(names=FIELDS[1:], values=VALUES[1:])[1],
        [b"secret", b"x"],
        [b"secret"],
    ],
)
def test_an_entry_that_is_no_outcome_is_named_and_never_quoted(bad: list[bytes]) -> None:
    with pytest.raises(StoreError, match=r"entry 5-0 of shard 0b") as caught:
        from_stream(11, [[b"5-0", bad]], None)
    assert caught.value.code == "outcome_unreadable"
    assert "secret" not in str(caught.value)


def test_a_single_server_is_read_in_one_transaction() -> None:
    (group,) = plan_groups(16, None)
    assert group.node is None
    assert group.units == (tuple(range(16)),)


def test_on_a_cluster_no_transaction_spans_two_shards() -> None:
    """One over two slots is CROSSSLOT, even where one node owns both."""
    owners = {shard: ("10.0.0.1" if shard % 2 else "10.0.0.2", 7000) for shard in range(6)}
    groups = {group.node: group.units for group in plan_groups(6, owners)}
    assert groups == {("10.0.0.2", 7000): ((0,), (2,), (4,)), ("10.0.0.1", 7000): ((1,), (3,), (5,))}


def test_the_owner_of_a_shard_is_the_primary_of_its_slot() -> None:
    halves = [[0, 8191, [b"a", 1, b"id"], [b"replica", 9, b"id"]], [8192, 16383, [None, 2, b"id"]]]
    assert {owner_of(shard, halves) for shard in range(16)} == {("a", 1), ("", 2)}
    with pytest.raises(StoreUnavailable, match="no cluster node serves shard 00"):
        owner_of(0, [])


def test_what_a_transaction_answers_is_sorted_back_to_its_shards() -> None:
    unit = (4, 9)
    commands = read_commands(unit, ["0-0"] * 16, 10, deep=True)
    missing = ResponseError("no such key")
    results: list[Any] = [[None, b"3-0"], b"store", None, [b"length", 1, b"last-generated-id", b"8-0"], missing]
    results.append([[b"ml:{04}:outcomes", [entry(b"8-0")]]])
    replies = [b"OK", *[b"QUEUED"] * (len(commands) - 2), results]
    four, nine = parse_read(unit, replies, deep=True)
    assert (four.shard, four.floor, four.store_id, four.last_id, len(four.entries)) == (4, None, "store", "8-0", 1)
    assert (nine.shard, nine.floor, nine.store_id, nine.last_id, len(nine.entries)) == (9, "3-0", None, "0-0", 0)


def test_error_replies_become_errors_of_this_package() -> None:
    assert checked(b"fine") == b"fine"
    with pytest.raises(StoreUnavailable):
        checked(MovedError("1234 127.0.0.1:7001"))
    with pytest.raises(StoreUnavailable):
        checked(ResponseError("STORE_CHANGED abc"))
    with pytest.raises(StoreError):
        checked(ResponseError("ERR whatever"))
    with pytest.raises(StoreError):
        parse_read(
            (0,), [b"OK", ResponseError("NOPERM no"), b"QUEUED", b"QUEUED", ResponseError("EXECABORT")], deep=False
        )


def test_cursors_survive_their_own_text() -> None:
    cursors = Cursors("store", ("0-0", "1796083126447-12", "18446744073709551615-18446744073709551615"))
    assert Cursors.from_json(cursors.to_json()) == cursors


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"version": 1, "store": "s"}',
        '{"version": 0, "store": "s", "shards": ["0-0"]}',
        '{"version": 1, "store": 3, "shards": ["0-0"]}',
        '{"version": 1, "store": "s", "shards": ["$"]}',
        '{"version": 1, "store": "s", "shards": ["0-0", null]}',
        '{"version": 1, "store": "s", "shards": ["0-0\\nDEL x"]}',
    ],
)
def test_damaged_cursors_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigError, match="move it away and resynchronise"):
        Cursors.from_json(text)


def test_index_keys_name_shard_and_tenant() -> None:
    key = sessions_key(31, "a:sessions:b/c@d")
    assert shard_and_tenant(key.encode()) == (31, "a:sessions:b/c@d")


def test_connections_never_retry_and_wait_longer_than_they_block() -> None:
    """Cases F1 and F2: the driver's defaults re-send ten times and give up on a block after five seconds."""
    settings = StoreSettings(RedisConfig(url="redis://127.0.0.1:1/3"))
    kwargs = connection_kwargs(settings, None, 30.0)
    assert kwargs["socket_timeout"] == 30.0 + MARGIN_SECONDS
    assert kwargs["retry"].get_retries() == 0
    assert kwargs["protocol"] == 2
    assert (kwargs["host"], kwargs["port"], kwargs["db"]) == ("127.0.0.1", 1, 3)
    moved = connection_kwargs(settings, ("", 7001), 30.0)
    assert (moved["host"], moved["port"]) == ("127.0.0.1", 7001)
    assert connection_kwargs(settings, ("10.1.1.1", 2), 1)["host"] == "10.1.1.1"


def test_a_url_of_another_kind_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="must begin with redis://"):
        OutcomeConsumer("http://127.0.0.1", None)  # type: ignore[arg-type]  # never reached


def test_outcomes_are_frozen() -> None:
    (outcome,) = from_stream(0, [entry()], None)
    with pytest.raises(AttributeError):
        outcome.shard = 1  # type: ignore[misc]  # the point
    assert json.dumps(outcome.record)
