"""Reads the Lua files at import; each script is put together and checked when it is first asked for.

All files are read at once, so that a process never runs files of a version that was installed beside it meanwhile.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from ledger.store.layouts import lua_for

_SLOT = re.compile(r"\b(KEYS|ARGV)\[(\d+)\]")
_INCLUDE = re.compile(r"^--!include (\w+)$")
_EACH_CALL = re.compile(r"^--!each-call (.+)$", re.MULTILINE)
_LAYOUTS = "--!layouts\n"
_HOT = re.compile(r"^--!function$", re.MULTILINE)


class ScriptError(Exception):
    """A script file contradicts its own header; raised when it is loaded."""


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: `name` as the file's, full `source`, and its SHA-1.

    `command` begins the command that runs it, `loading` is the one that makes it known to a server.
    """

    name: str
    source: str
    sha: str
    command: tuple[str, str]
    loading: tuple[str, ...]


Texts = Mapping[str, str]
"""What the files hold, by name without the ending; those of libraries begin with `lib/`."""


def read_all(folder: Traversable) -> Texts:
    """The Lua files of a folder and of its `lib`."""
    found = {}
    for prefix, place in (("", folder), ("lib/", folder / "lib")):
        for path in sorted(place.iterdir(), key=lambda entry: entry.name):
            if path.name.endswith(".lua"):
                found[prefix + path.name.removesuffix(".lua")] = path.read_text(encoding="utf-8")
    return found


def _library(name: str, seen: tuple[str, ...], texts: Texts) -> str:
    if name in seen:
        raise ScriptError(f"include cycle: {' -> '.join((*seen, name))}")
    text = texts.get(f"lib/{name}")
    if text is None:
        raise ScriptError(f"no such include: lib/{name}.lua")
    return _expand(text, (*seen, name), texts)


def _expand(text: str, seen: tuple[str, ...], texts: Texts) -> str:
    lines = []
    for line in text.splitlines():
        match = _INCLUDE.match(line)
        lines.append(_library(match.group(1), seen, texts) if match else line)
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


def _split(text: str) -> tuple[str, str]:
    """A script file's header with its includes, and its own code."""
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line and not line.startswith("--"))
    return "\n".join(lines[:first]) + "\n", "\n".join(lines[first:]) + "\n"


def _as_function(name: str, libraries: str, body: str) -> str:
    """The script as a function: its libraries are made once a server life, not at every call."""
    each_call = "".join(f"{code}\n" for code in _EACH_CALL.findall(libraries))
    shared = _EACH_CALL.sub("", libraries)
    return f"#!lua name={name}\n{shared}redis.register_function('{name}', function(KEYS, ARGV)\n{each_call}{body}end)\n"


def load(name: str, texts: Texts) -> Script:
    """Puts the script `name` together with its includes.

    Raises:
        ScriptError: header and first line disagree, an include is missing, cyclic or there twice.
    """
    text = texts[name]
    _check_slots(name, text)
    header, body = _split(text)
    libraries = _expand(header, (), texts)
    libraries = libraries.replace(_LAYOUTS, lua_for(libraries + body))
    source = _EACH_CALL.sub(r"\1", libraries) + body
    _check_includes(name, source)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    if not _HOT.search(header):
        return Script(name, source, sha, ("EVALSHA", sha), ("SCRIPT", "LOAD", source))
    function = f"{name}_{sha}"
    loading = ("FUNCTION", "LOAD", _as_function(function, libraries, body))
    return Script(name, source, sha, ("FCALL", function), loading)


class _Scripts(Mapping[str, Script]):
    """Put together one by one: a process needs few of them, and all would be a tenth of its start."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._loaded: dict[str, Script] = {}

    def __getitem__(self, name: str) -> Script:
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = load(name, self._texts)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._texts if not name.startswith("lib/"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


SCRIPTS: Mapping[str, Script] = _Scripts(read_all(files("ledger") / "lua"))
"""Every script of the package by name."""
