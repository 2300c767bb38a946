"""JSON out. The standard library writes integers of any size exactly; faster writers round or refuse them (C-02)."""

from __future__ import annotations

import json
from typing import Any

from flask import Response

from ledger.long_integers import write_json

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def dump(value: Any) -> str:
    """Compact ASCII JSON."""
    return write_json(value, _ENCODER)


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(dump(value), status, content_type="application/json")
