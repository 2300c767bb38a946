"""A small client of the front door's HTTP API.

    client = Client("http://127.0.0.1:8321", token)
    run = client.trigger("incident-42", [{"tool": "mcp__dashboards__create", "arguments": {"title": "Errors"}}])

Every delivery carries a `delivery_id`, made here if none is given, and only with it is anything sent again.
"""

from ledger.client.client import Client
from ledger.client.errors import ServiceUnavailable
from ledger.client.shapes import Approval, Call, Change, Event, Mutation, Ready, Record, Run, State

__all__ = [
    "Approval",
    "Call",
    "Change",
    "Client",
    "Event",
    "Mutation",
    "Ready",
    "Record",
    "Run",
    "ServiceUnavailable",
    "State",
]
