"""Tables and text for people: what comes from callers is shown, never obeyed by the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.long_integers import write_json
from ledger.sanitise.characters import drop_invisible

_COMPACT = json.JSONEncoder(separators=(",", ":"))
_INDENTED = json.JSONEncoder(indent=2, ensure_ascii=False)

# Without a terminal nothing is folded, so that a line stays a line for `grep`.
PIPE_COLUMNS = 10_000
SHORT_ID = 12


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under headings; None is shown as a dash."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if cell is None else printable(str(cell))) for cell in row))
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def printable(text: str) -> str:
    r"""`text` with everything that is not seen, or moves the cursor, written as `\u....` (JSON reads it back)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def print_exact(data: Any) -> None:
    """`print_json` for what holds arguments: integers of any size stay what they are (C-02)."""
    click.echo(write_json(data, _COMPACT))


def pretty(value: Any) -> list[str]:
    """JSON in lines for people; nothing in it is invisible."""
    # Not splitlines: JSON leaves U+2028 and its like unescaped, and they must not begin a line of their own.
    return [printable(line) for line in write_json(value, _INDENTED).split("\n")]


def _shown(character: str) -> str:
    if character.isprintable() and drop_invisible(character):
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + ((code - 0x10000) >> 10):04x}\\u{0xDC00 + ((code - 0x10000) & 0x3FF):04x}"
