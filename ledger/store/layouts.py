"""Layouts of the records and requests that every mutation touches; scripts and Python both read them from here.

A record is the format byte, then its values one after the other in the order of its layout, nil where there is none,
then a map of what most records do not have, nil if it would be empty: no other name is stored, and a script reads a
record into a table that is made once, at its size. A request has no such map. What the letters mean is told at the head
of `ledger/lua/lib/session.lua`, `entry.lua`, `run.lua`, `journal.lua` and `ask.lua`, and at the head of each script. A
layout that changes is a new format (`codec.FORMAT`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of the values that are stored in order, and of those that go into the map; None for a request."""

    fixed: tuple[str, ...]
    rare: tuple[str, ...] | None = None

    @classmethod
    def of(cls, text: str) -> Layout:
        """`"a b | c"`: a and b in order, c in the map."""
        fixed, bar, rare = text.partition("|")
        return cls(tuple(fixed.split()), tuple(rare.split()) if bar else None)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name."""
        return self.fixed + (self.rare or ())


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        name: Layout.of(text)
        for name, text in {
            "session": "tn s no g at tc an lm ia lv ts |",
            "current": "k r i t m at st dl |",
            "turn": "a u d rv ms lv at | f",
            "entry": "s tl at na rv o ri x fh | r md pf rc vo ls pa pc pl pb rb rq mq",
            "delivery": "r t c tb | er at",
            "run_meta": "tn s sid a u p d di n g k oe ce ss pd co tb jr at hw | h be ta tp lk",
            "run_state": "st i t su sr en | er cx sk ec co hs on rn rp tp by mu rb",
            "call": "t m st pr lv ru | ap rf ex el hd pd da",
            "approval": "st tn s sid run i tl m lv p u at ex | by da cm us",
            "event": "e a i m o rv x | ap",
            "claim_request": "no mx pd pv to dr le wr ex bc tb aw hd",
            "begin_request": "sid tk st pd pv to dr le wr ex bc tb yd hd ol pp ap",
            "settle_request": "sid tk at r i t m x v rs res cd nx st pd pv to dr le wr ex bc tb yd hd ol",
        }.items()
    }
)

_PACK = """\
local function pack_{name}(v)
  local rest
{checks}  return cmsgpack.pack(FORMAT, {packed}, rest)
end
"""
_CHECK = "  if v.{field} ~= nil then rest = rest or {{}} rest.{field} = v.{field} end\n"
_READ = """\
local function read_{name}(bytes)
  if not bytes then return nil end
  if string.byte(bytes) ~= FORMAT then refuse('FORMAT_TOO_NEW', 'a newer version wrote this record') end
  local _, {values}, rest = cmsgpack.unpack(bytes)
  local v = {{ {table} }}
  if rest then for field, value in pairs(rest) do v[field] = value end end
  return v
end
"""


def lua_for(source: str) -> str:
    """The Lua functions `pack_<layout>` and `read_<layout>` that `source` uses."""
    used = set(re.findall(r"\b(?:pack|read)_(\w+)\b", source))
    return "\n".join(_functions(name, layout) for name, layout in LAYOUTS.items() if name in used)


def _functions(name: str, layout: Layout) -> str:
    numbered = [(field, f"v{number}") for number, field in enumerate(layout.fixed, start=1)]
    read = _READ.format(
        name=name,
        values=", ".join(value for _, value in numbered),
        table=", ".join(f"{field} = {value}" for field, value in numbered),
    )
    if layout.rare is None:
        return read
    return read + _PACK.format(
        name=name,
        packed=", ".join(f"v.{field}" for field in layout.fixed),
        checks="".join(_CHECK.format(field=field) for field in layout.rare),
    )
