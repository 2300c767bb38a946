"""Layouts of the records and requests that every mutation touches; scripts and Python both read them from here.

A record is the format byte, then its values one after the other in the order of its layout, nil where there is none:
no name is stored, and a script reads it into a table that is made once, at its size. What the letters mean is told at
the head of `ledger/lua/lib/session.lua`, `entry.lua`, `run.lua`, `journal.lua` and `ask.lua`. A layout that changes is
a new format (`codec.FORMAT`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

Layout = tuple[str, ...]

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        name: tuple(fields.split())
        for name, fields in {
            "session": "tn s no g at tc an lm ia lv ts",
            "current": "k r i t m at st dl",
            "turn": "a u d rv ms f lv at",
            "entry": "s tl at na rv o r md pf ri x rc vo ls fh pa pc pl rb",
            "delivery": "r t c tb er at",
            "run_meta": "tn s sid a u p d di n g k h oe ce ss pd be ta co tb tp jr lk at hw",
            "run_state": "st i t su sr er cx en sk ec co hs on rn rp tp by mu rb",
            "call": "t m st pr lv ap ru rf ex el hd pd da",
            "approval": "st tn s sid run i tl m lv p u at ex by da cm us",
            "event": "e a i m ap o rv x",
            "claim_request": "no mx le pd pv to dr wr ex bc tb aw hd",
            "begin_request": "sid tk st pd pv to dr le wr ex bc tb yd hd ol pp ap",
            "settle_request": "sid tk at r i t m x v rs res cd nx st pd pv to dr le wr ex bc tb yd hd ol",
        }.items()
    }
)
"""Names of the values of a record, in the order in which they are stored."""

_LUA = """\
local function pack_{name}(v)
  return cmsgpack.pack(FORMAT, {packed})
end

local function read_{name}(bytes)
  if not bytes then return nil end
  if string.byte(bytes) ~= FORMAT then refuse('FORMAT_TOO_NEW', 'a newer version wrote this record') end
  local _, {values} = cmsgpack.unpack(bytes)
  return {{ {table} }}
end
"""


def lua_for(source: str) -> str:
    """The Lua functions `pack_<layout>` and `read_<layout>` of every layout that `source` uses."""
    used = set(re.findall(r"\b(?:pack|read)_(\w+)\b", source))
    return "\n".join(_functions(name, layout) for name, layout in LAYOUTS.items() if name in used)


def _functions(name: str, layout: Layout) -> str:
    numbered = [(field, f"v{number}") for number, field in enumerate(layout, start=1)]
    return _LUA.format(
        name=name,
        packed=", ".join(f"v.{field}" for field in layout),
        values=", ".join(value for _, value in numbered),
        table=", ".join(f"{field} = {value}" for field, value in numbered),
    )
