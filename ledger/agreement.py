"""Processes of one store agree on one policy, or say what differs (C-05)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ledger.policy import Policy
from ledger.store.call import ScriptCall
from ledger.store.codec import pack

BEAT_SECONDS = 5.0
"""How often a living process says which policy it follows."""
GONE_SECONDS = 15.0
"""After this much silence a process counts as gone."""
MOST_DIFFERENCES = 10


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether this process follows the store's policy; if not, what differs, one line each."""

    agreed: bool
    differences: tuple[str, ...] = ()


def beat_policy(policy: Policy, process: str) -> ScriptCall[Agreement]:
    """Says that `process` lives and follows `policy`, which becomes the store's if nobody alive follows another."""
    request = _request(policy, process)

    def decode(reply: list[Any]) -> Agreement:
        if reply[1] != b"other":
            return Agreement(agreed=True)
        return Agreement(agreed=False, differences=differences(policy.description, reply[2].decode()))

    return ScriptCall.of("beat_policy", 0, pack(request), decode=decode)


def leave_policy(policy: Policy, process: str) -> ScriptCall[Literal[True]]:
    """Says that `process` ends, so that nobody waits for its silence."""
    request = _request(policy, process) | {"bye": True}
    return ScriptCall.of("beat_policy", 0, pack(request), decode=lambda _: True)


def differences(mine: str, theirs: str) -> tuple[str, ...]:
    """What differs between two descriptions, at most `MOST_DIFFERENCES` lines such as `levels.x: "approve" here, ...`.

    Descriptions hold names, levels and conditions of the configuration: never arguments or secrets.
    """
    here, there = dict(_leaves(json.loads(mine))), dict(_leaves(json.loads(theirs)))
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    lines = [f"{name}: {here.get(name, 'absent')} here, {there.get(name, 'absent')} there" for name in names]
    more = len(lines) - MOST_DIFFERENCES
    return tuple(lines[:MOST_DIFFERENCES] + ([f"and {more} more"] if more > 0 else []))


def _request(policy: Policy, process: str) -> dict[str, Any]:
    return {"d": policy.digest, "c": policy.description, "p": process, "ls": int(GONE_SECONDS * 1000)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each leaf as its path and JSON; the items of a list of names are paths themselves."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        for item in value:
            yield f"{path}.{item}", "present"
    else:
        yield path, json.dumps(value, sort_keys=True)
