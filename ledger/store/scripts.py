"""Loads the Lua scripts and checks them at import: headers, slots and includes agree, nothing is cyclic."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

_SLOT = re.compile(r"\b(KEYS|ARGV)\[(\d+)\]")
_INCLUDE = re.compile(r"^--!include (\w+)$")
_LUA = files("ledger") / "lua"


class ScriptError(Exception):
    """A script file contradicts its own header; raised at import."""


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: `name` as the file's, full `source`, and its SHA-1 for EVALSHA."""

    name: str
    source: str
    sha: str


def _library(name: str, seen: tuple[str, ...]) -> str:
    if name in seen:
        raise ScriptError(f"include cycle: {' -> '.join((*seen, name))}")
    path = _LUA / "lib" / f"{name}.lua"
    if not path.is_file():
        raise ScriptError(f"no such include: lib/{name}.lua")
    return _expand(path.read_text(encoding="utf-8"), (*seen, name))


def _expand(text: str, seen: tuple[str, ...]) -> str:
    lines = []
    for line in text.splitlines():
        match = _INCLUDE.match(line)
        lines.append(_library(match.group(1), seen) if match else line)
    return "\n".join(lines) + "\n"


def _check_slots(name: str, text: str) -> None:
    lines = text.splitlines()
    header = [line for line in lines if line.startswith("--") and not _INCLUDE.match(line)]
    code = next((line for line in lines if line and not line.startswith("--")), "")
    named, used = set(_SLOT.findall("\n".join(header))), set(_SLOT.findall(code))
    if not header or "Reply:" not in "\n".join(header):
        raise ScriptError(f"{name}.lua has no header with a Reply")
    if named != used:
        raise ScriptError(f"{name}.lua: header slots {sorted(named)} are not those of its first line {sorted(used)}")
    body = set(_SLOT.findall("\n".join(line for line in lines if not line.startswith("--"))))
    if body - used:
        raise ScriptError(f"{name}.lua uses slots its first line does not name: {sorted(body - used)}")


def _check_includes(name: str, source: str) -> None:
    """A library that came in twice would define its functions anew for half of the script."""
    defined = re.findall(r"^local function (\w+)", source, re.MULTILINE)
    twice = sorted({function for function in defined if defined.count(function) > 1})
    if twice:
        raise ScriptError(f"{name}.lua defines twice, by its includes or itself: {', '.join(twice)}")


def load(name: str) -> Script:
    """Reads `ledger/lua/<name>.lua` with its includes.

    Raises:
        ScriptError: header and first line disagree, an include is missing, cyclic or there twice.
    """
    text = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    _check_slots(name, text)
    source = _expand(text, ())
    _check_includes(name, source)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


SCRIPTS: dict[str, Script] = {
    path.name.removesuffix(".lua"): load(path.name.removesuffix(".lua"))
    for path in sorted(_LUA.iterdir(), key=lambda entry: entry.name)
    if path.name.endswith(".lua")
}
"""Every script of the package by name."""
