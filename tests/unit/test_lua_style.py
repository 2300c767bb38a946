"""House rules of the scripts that can be read off their text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.store import scripts
from ledger.store.scripts import SCRIPTS
from ledger.store.wire import _REFUSALS

FOLDER = Path(scripts.__file__).parent.parent / "lua"
FILES = sorted(FOLDER.rglob("*.lua"))
# Raised for every script by its guard, or for records of a newer version.
EVERYWHERE = {"STORE_WENT_BACK", "STORE_CHANGED", "FORMAT_TOO_NEW"}
FUNCTION = re.compile(r"^(?:local )?function ([\w.]+)\(", re.MULTILINE)


def code(text: str) -> str:
    """A script without its comments and strings."""
    return re.sub(r"--[^\n]*|'[^'\n]*'", "", text)


def bodies(source: str) -> dict[str, str]:
    """Top-level functions of a script with includes, by name, and what stands outside of them under ''."""
    found: dict[str, str] = {}
    outside: list[str] = []
    lines: list[str] = []
    name = ""
    for line in source.splitlines():
        head = FUNCTION.match(line)
        if head and not line.rstrip().endswith(" end"):
            name, lines = head.group(1), []
        elif head:
            found[head.group(1)] = line
        elif name and line == "end":
            found[name], name = "\n".join(lines), ""
        elif name:
            lines.append(line)
        else:
            outside.append(line)
    return {**found, "": "\n".join(outside)}


def reached(source: str) -> str:
    """The text that a script can get to: what stands outside of functions, and every function it calls in turn."""
    functions = bodies(source)
    text, seen, todo = [], set(), [""]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        text.append(functions[name])
        words = set(re.findall(r"[\w.]+", functions[name]))
        todo += [other for other in functions if other in words]
    return "\n".join(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_says_what_it_is_and_stays_small(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("-- ")
    assert len(lines) <= 300
    assert max(map(len, lines)) <= 140


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_header_names_exactly_the_refusals_the_script_can_give(name: str) -> None:
    header = (FOLDER / f"{name}.lua").read_text()
    told = set(re.findall(r"\b[A-Z]{3,}_[A-Z_]+\b", re.findall(r"-- (?:.*)Errors:(.*(?:\n--   .*)*)", header)[0]))
    given = set(re.findall(r"refuse\('([A-Z_]+)'", reached(SCRIPTS[name].source)))
    reported = set(re.findall(r"pcall\((?:continue_session|first_work)", header))
    if reported:
        # Caught and told in the reply; what the script itself refuses must be told all the same.
        given -= {"LEASE_LOST", "STALE_STEP", "ATTEMPT_VOIDED", "CALL_IN_FLIGHT"} | ({"POLICY_STALE"} - told)
    assert told - EVERYWHERE == given - EVERYWHERE


def test_every_refusal_is_translated_and_every_translation_is_used() -> None:
    given = {code for script in SCRIPTS.values() for code in re.findall(r"refuse\('([A-Z_]+)'", script.source)}
    assert given - EVERYWHERE == _REFUSALS


@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - {"init_shard", "accept_shard"}))
def test_nothing_is_done_before_the_guard(name: str) -> None:
    outside = code(bodies(SCRIPTS[name].source)[""])
    before = outside[: outside.index("guard(seq_key, store_id, seen)")]
    assert "redis.call" not in before


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_scans_blocks_or_looks_at_another_clock(path: Path) -> None:
    text = path.read_text()
    commands = set(re.findall(r"redis\.p?call\('(\w+)'", text))
    assert commands.isdisjoint({"KEYS", "SCAN", "HSCAN", "SSCAN", "ZSCAN", "FLUSHALL", "EVAL", "BLPOP", "WAIT"})
    assert not re.search(r"\bos\.|redis\.pcall|redis\.sha1hex|math\.random", text)
    if path.name != "guard.lua":
        assert "TIME" not in commands


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_key_names_are_built_in_one_place(path: Path) -> None:
    if path.name in ("keys.lua", "init_shard.lua"):
        return
    text = re.sub(r"--[^\n]*", "", path.read_text())
    assert "ml:" not in text
    assert [line for line in text.splitlines() if re.search(r"\bP \.\.", line)] == []


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_name_a_script_reaches_is_defined(name: str) -> None:
    source = SCRIPTS[name].source
    text = code(reached(source))
    called = set(re.findall(r"(?<![.\w:])([a-z_]+)\(", text)) - {"function"}
    called |= set(re.findall(r"pcall\(([a-z_]+)", text))
    defined = set(re.findall(r"function ([a-z_]+)\(", source)) | set(re.findall(r"[(,] *([a-z_]+)(?=[,)])", source))
    builtin = {"tonumber", "tostring", "ipairs", "pairs", "unpack", "pcall", "error", "type"}
    words = {"if", "and", "or", "not", "return", "while", "elseif", "until", "in"}
    assert called - defined - builtin - words == set()
