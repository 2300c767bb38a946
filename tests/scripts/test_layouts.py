"""Stored records have one layout for scripts and Python (C-22: a repeat reads what was written)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgpack
import pytest

from ledger.attempts import Begun, Settlement, begin_next, settle_attempt
from ledger.errors import StoreError
from ledger.ownership import claim_sessions
from ledger.states import MutationStatus
from ledger.store import ScriptCall, scripts
from ledger.store.codec import FORMAT, pack_record, raw, unpack_record
from ledger.store.layouts import LAYOUTS, lua_for
from tests.support.ledger import POLICY, Ledger

LUA = Path(scripts.__file__).parent.parent / "lua"
# How the scripts call a record of each layout.
NAMES = {
    "session": r"(?:S|outlived)\.meta",
    "current": r"current|S\.current|S\.voided",
    "turn": r"turn",
    "entry": r"entry",
    "delivery": r"delivery|known|record",
    "run_meta": r"R\.meta",
    "run_state": r"R\.state|before\.state",
    "call": r"call|call_of\(R, [\w.]+\)",
    "approval": r"approval",
}
VALUES = ("text", b"\x00\xff raw", 7, 2**40, 1.5, True, False, [1, 2], {"k": "v"}, None)


@pytest.mark.parametrize("layout", sorted(NAMES))
def test_scripts_use_no_value_that_its_layout_would_drop(layout: str) -> None:
    # `call.a` is the request's: its arguments are kept apart (C-83).
    known = {*LAYOUTS[layout].names, *({"a"} if layout == "call" else ())}
    used = set()
    for path in LUA.rglob("*.lua"):
        code = re.sub(r"--[^\n]*|'[^'\n]*'", "", path.read_text())
        used |= set(re.findall(rf"(?<![\w.])(?:{NAMES[layout]})\.(\w+)", code))
    assert used
    assert used <= known | ({"meta", "state"} if layout == "current" else set())


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("of", ["fixed", "names"])
def test_what_python_packs_it_reads_again_without_what_is_not_there(layout: str, of: str) -> None:
    names = getattr(LAYOUTS[layout], of)
    record = {name: VALUES[at % len(VALUES)] for at, name in enumerate(names)}
    found = unpack_record(layout, pack_record(layout, record))
    back = {name: raw(value) if isinstance(record[name], bytes) else value for name, value in found.items()}
    assert back == {name: value for name, value in record.items() if value is not None}


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.rare is not None])
@pytest.mark.parametrize("of", ["fixed", "names"])
def test_a_script_reads_and_writes_a_record_as_python_does(ledger: Ledger, layout: str, of: str) -> None:
    names = getattr(LAYOUTS[layout], of)
    packed = pack_record(layout, {name: VALUES[at % len(VALUES)] for at, name in enumerate(names)})
    refuse = "local FORMAT = 1\nlocal function refuse(code) error({ err = code }) end\n"
    source = f"{refuse}{lua_for(f'pack_{layout} read_{layout}')}\nreturn pack_{layout}(read_{layout}(ARGV[1]))"
    assert unpack_record(layout, ledger.raw.eval(source, 0, packed)) == unpack_record(layout, packed)
    with pytest.raises(Exception, match="FORMAT_TOO_NEW"):
        ledger.raw.eval(source, 0, b"\x02" + packed[1:])


def test_a_newer_format_is_refused_by_python() -> None:
    packed = pack_record("entry", {"s": "c"})
    assert packed[:1] == FORMAT
    with pytest.raises(StoreError) as refused:
        unpack_record("entry", b"\x02" + packed[1:])
    assert refused.value.code == "format_too_new"


def test_requests_have_a_value_for_each_name_of_their_layout() -> None:
    begun = Begun(
        "sid", "run", 0, "tool", "{}", "attempt", 1, b"\x01" * 32, 1, "turn", 2, 1, "s1", "ops", "dana", None, None
    )
    calls: dict[str, ScriptCall[Any]] = {
        "claim_request": claim_sessions(0, "nonce", 1, POLICY),
        "begin_request": begin_next(0, "sid", "token", 1, POLICY),
        "settle_request": settle_attempt(
            0, begun, "token", Settlement(MutationStatus.COMPLETED), next_step=2, policy=POLICY
        ),
    }
    for layout, call in calls.items():
        assert isinstance(call.args[0], bytes)
        values = msgpack.Unpacker(raw=True)
        values.feed(call.args[0][1:])
        assert len(list(values)) == len(LAYOUTS[layout].fixed), layout
