"""Resource ids and titles (C-102)."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.sanitise import public_resource_id, public_title
from ledger.sanitise.characters import has_controls
from ledger.sanitise.text import truncate

CONTROLS = [
    "\x00",
    "\x1b",
    "\n",
    "\t",
    "\x7f",
    "\x85",
    "\x9f",
    "\u061c",
    "\u200e",
    "\u200f",
    "\u2028",
    "\u2029",
]
CONTROLS += ["\u202a", "\u202e", "\u2066", "\u2069", "\u206f"]


@pytest.mark.proves("C-102")
def test_an_id_is_published_unchanged() -> None:
    for value in (
        "dash-17",
        "é" * 128,
        "a b",
        '{"a":1}',
        "https://host.example/d/17?x=1",
        "İıſ",
        "👩‍👧",
        " x ",
    ):
        assert public_resource_id(value) == value


@pytest.mark.proves("C-102")
def test_an_id_over_256_bytes_is_withheld_not_cut() -> None:
    assert public_resource_id("x" * 256) == "x" * 256
    assert public_resource_id("x" * 257) is None
    assert public_resource_id("é" * 129) is None
    assert public_resource_id("\U0001f600" * 64) is not None
    assert public_resource_id("\U0001f600" * 64 + "x") is None


@pytest.mark.proves("C-102")
@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_character_withholds_an_id_and_is_dropped_from_a_title(control: str) -> None:
    assert has_controls(control)
    assert public_resource_id(f"dash{control}17") is None
    assert public_title(f"Service{control} overview{control}") == "Service overview"


@pytest.mark.proves("C-102")
@pytest.mark.parametrize("value", [None, 17, 1.5, True, {"a": 1}, ["x"], b"x", "", "\ud800", "x\udfff"])
def test_what_is_not_text_is_withheld(value: object) -> None:
    assert public_resource_id(value) is None
    assert public_title(value) is None


@pytest.mark.proves("C-102")
def test_a_title_is_cut_to_512_bytes_between_code_points() -> None:
    assert public_title("x" * 512) == "x" * 512
    assert public_title("x" * 513) == "x" * 512
    assert public_title("é" * 300) == "é" * 256
    assert public_title("x" + "é" * 300) == "x" + "é" * 255
    assert public_title("xyz" + "\U0001f600" * 200) == "xyz" + "\U0001f600" * 127
    assert public_title("é" * 2_621_440) is None


@pytest.mark.proves("C-102")
def test_redaction_comes_before_truncation() -> None:
    token = "gh" + "p_" + "a1B2c3D4e5" * 4
    for start in range(460, 513):
        title = public_title("x" * (start - 1) + " " + token)
        assert title is not None
        assert "gh" + "p_" not in title
        assert len(title) <= 512
    assert public_title("password=" + "x" * 600 + " changed") == "[redacted] changed"


@pytest.mark.proves("C-102")
def test_a_control_character_hides_no_credential() -> None:
    assert public_title("old pass\x00word=hunter2hunter2 gone") == "old [redacted] gone"


@pytest.mark.proves("C-102")
def test_truncation_lays_no_credential_bare() -> None:
    basic = base64.b64encode(b"user:pass").decode()
    start = "x" * (512 - len(f" Basic {basic}"))
    assert public_title(f"{start} Basic {basic}AAAA") is None


@pytest.mark.proves("C-102")
@pytest.mark.parametrize(
    "value",
    [
        '{"a":1}',
        "[]",
        ' {"a": [1, 2]}\n',
        '{\n "a": 1\n}',
        '{"a":1,"a":2}',
        '{"a":NaN}',
        "\u200b[1]\ufeff",
        '\x00{"a":\x001}',
        '{"password":"hunter2hunter2","x":1}',
        '{"password":"hunter2hunter2",\x00"x":1\x00}\x00',
        json.dumps({"a": "x" * 2000}),
        '{"a":1}' + " " * 600 + "tail",
        "[" * 5000 + "]" * 5000,
        "[" + "9" * 5000 + "]",
    ],
)
def test_structured_json_is_no_title(value: str) -> None:
    assert public_title(value) is None


@pytest.mark.proves("C-102")
@pytest.mark.parametrize("value", ["[WIP] fix it", "{service} is down", "[1", "{}x", '"quoted"', "17", "true", "[a]"])
def test_text_that_only_looks_structured_is_kept(value: str) -> None:
    assert public_title(value) == value


@pytest.mark.proves("C-102")
def test_a_title_of_nothing_is_withheld() -> None:
    for value in (" ", "\x00\x01", "\u202e\n"):
        assert public_title(value) is None


@pytest.mark.proves("C-102")
def test_controls_uncovered_by_decoding_are_dropped_too() -> None:
    title = public_title("password%3Dhunter2hunter2 %00%E2%80%AE%0A now")
    assert title is not None
    assert title.startswith("[redacted]")
    assert not has_controls(title)


@pytest.mark.proves("C-102")
@settings(deadline=None)
@given(st.text(max_size=600), st.integers(min_value=0, max_value=600))
def test_truncation_is_the_longest_whole_beginning(text: str, limit: int) -> None:
    text = text.encode("utf-8", "ignore").decode()
    cut = truncate(text, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    assert cut == text or len(text[: len(cut) + 1].encode()) > limit


@pytest.mark.proves("C-102")
@settings(deadline=None)
@given(st.text(max_size=700) | st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_any_value_gives_a_bounded_clean_field_or_nothing(value: object) -> None:
    title = public_title(value)
    assert title is None or (0 < len(title.encode()) <= 512 and not has_controls(title))
    resource_id = public_resource_id(value)
    assert resource_id is None or (resource_id == value and len(resource_id.encode()) <= 256)
