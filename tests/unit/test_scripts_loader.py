"""The script loader: a file that contradicts its own header, or its includes, is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import ledger.store.scripts
from ledger.store.scripts import SCRIPTS, ScriptError, load, read_all

GOOD = """-- Does a thing.
-- KEYS[1] a key
-- ARGV[1] an argument
-- Reply: {n}
--!include one
local key, argument = KEYS[1], ARGV[1]
return { one(key, argument) }
"""


@pytest.fixture
def lua(tmp_path: Path) -> Path:
    """A folder of scripts in place of the package's."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.lua").write_text("local function one(key) return 1 end\n")
    (tmp_path / "good.lua").write_text(GOOD)
    return tmp_path


def fault(lua: Path, text: str) -> str:
    (lua / "bad.lua").write_text(text)
    with pytest.raises(ScriptError) as caught:
        load("bad", read_all(lua))
    return str(caught.value)


def test_includes_stand_where_they_are_named(lua: Path) -> None:
    script = load("good", read_all(lua))
    assert "--!include" not in script.source
    assert script.source.index("local function one") < script.source.index("local key")
    assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("-- ARGV[1] an argument\n", ""), "not those of its first line"),
        (("-- KEYS[1] a key\n", ""), "not those of its first line"),
        ((", ARGV[1]", ", ARGV[1], ARGV[2]"), "not those of its first line"),
        (("one(key, argument)", "one(KEYS[2])"), "does not name"),
        (("one(key, argument)", "one(ARGV[3])"), "does not name"),
        (("-- Reply: {n}\n", ""), "no header"),
        (("include one", "include two"), "no such include"),
        (("--!include one\n", "--!include one\n--!include one\n"), "twice"),
        (("return {", "local function one() end\nreturn {"), "twice"),
    ],
)
def test_a_contradiction_is_refused(lua: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in GOOD
    assert message in fault(lua, GOOD.replace(*change, 1))


def test_an_include_that_leads_back_to_itself_is_refused(lua: Path) -> None:
    (lua / "lib" / "one.lua").write_text("--!include two\n")
    (lua / "lib" / "two.lua").write_text("--!include one\n")
    assert "one -> two -> one" in fault(lua, GOOD)


def test_a_library_that_comes_in_by_two_others_is_refused(lua: Path) -> None:
    (lua / "lib" / "two.lua").write_text("--!include one\n")
    text = GOOD.replace("--!include one\n", "--!include one\n--!include two\n")
    assert "twice" in fault(lua, text)


def test_every_script_of_the_package_is_loaded_under_its_file_s_name() -> None:
    folder = Path(ledger.store.scripts.__file__).parent.parent / "lua"
    assert set(SCRIPTS) == {path.stem for path in folder.glob("*.lua")}
    assert {load(name, read_all(folder)) for name in SCRIPTS} == set(SCRIPTS.values())


def test_every_library_is_used() -> None:
    folder = Path(ledger.store.scripts.__file__).parent.parent / "lua"
    texts = "\n".join(path.read_text() for path in folder.rglob("*.lua"))
    assert [path.stem for path in (folder / "lib").glob("*.lua") if f"--!include {path.stem}\n" not in texts] == []


def test_every_script_has_its_own_tests() -> None:
    folder = Path(__file__).parents[1] / "scripts"
    assert [name for name in SCRIPTS if not (folder / f"test_{name}.py").is_file()] == []
