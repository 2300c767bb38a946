"""The public contract `mutation_outcome/v1` as package data: limits, JSON Schema, examples (C-101)."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def raw_bytes() -> bytes:
    """The contract document as shipped, UTF-8 JSON."""
    return files(__name__).joinpath("mutation_outcome_v1.json").read_bytes()


def load() -> dict[str, Any]:
    """The contract document parsed, a fresh copy each time."""
    document: dict[str, Any] = json.loads(raw_bytes())
    return document
