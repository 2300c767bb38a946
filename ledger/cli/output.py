"""Printing: text for people, JSON for programs."""

from __future__ import annotations

from typing import Any

import click
import orjson


def print_json(data: Any) -> None:
    """One JSON document on one line of standard output."""
    click.echo(orjson.dumps(data).decode())


def note(line: str) -> None:
    """One line for people on standard error."""
    click.echo(line, err=True)
