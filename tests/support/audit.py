"""Every change of ownership in a store, as the server itself ran it: MONITOR shows what scripts do, in order."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType

from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

_ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SESSION = re.compile(r"^ml:\{([0-9a-f]{2})\}:session:([0-9a-f]{32})$")


@dataclass
class Seen:
    """What was seen so far. `violations` must stay empty.

    `partial`: it began in the middle, so that an owner who was there before is not known.
    """

    partial: bool = False
    owners: dict[str, str] = field(default_factory=dict)
    last_number: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    claims: Counter[int] = field(default_factory=Counter)
    intents: Counter[int] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def claimed(self, shard: str, sid: str, token: str) -> None:
        """A session got an owner."""
        if sid in self.owners:
            self.violations.append(f"{sid} went to {token} while {self.owners[sid]} had it")
        number = int(token.split("-", maxsplit=1)[0])
        if number <= self.last_number.get(shard, 0):
            self.violations.append(f"{token} is not above {self.last_number[shard]}")
        self.last_number[shard] = number
        self.known.add(sid)
        self.owners[sid] = token
        self.claims[pid_of(token)] += 1

    def gone(self, sid: str, how: str) -> None:
        """A session lost its owner."""
        self.left[how] += 1
        self.owners.pop(sid, None)

    def intent(self, sid: str, step: str, current: str) -> None:
        """An attempt was begun; `current` is its packed record as MONITOR shows it, with the attempt's token inside."""
        owner = self.owners.get(sid)
        if self.partial and sid not in self.known:
            return
        if owner is None or f"{owner}-{step}" not in current:
            self.violations.append(f"{current} began in {sid}, which {owner} had")
        else:
            self.intents[pid_of(owner)] += 1

    def read(self, words: list[str]) -> None:
        """Takes in one command that the server ran."""
        match = _SESSION.match(words[1]) if len(words) > 1 else None
        if match is None:
            return
        command = words[0].upper()
        shard, sid = match.groups()
        fields = words[2:]
        if command in ("HSET", "HMSET"):
            self._wrote(shard, sid, dict(zip(fields[::2], fields[1::2], strict=True)))
        elif command in ("RENAME", "DEL", "UNLINK"):
            self.gone(sid, "erased")
        elif command == "HDEL" and "o" in fields:
            self.gone(sid, "disowned")

    def _wrote(self, shard: str, sid: str, fields: dict[str, str]) -> None:
        if "o" in fields:
            self.claimed(shard, sid, fields["o"])
        step = fields.get("p", "")
        if re.match(r"^\d+[ry]", step):
            self.left["yielded" if "y" in step else "released"] += 1
        if step.endswith("b") and "c" in fields:
            self.intent(sid, step.removesuffix("b"), fields["c"])


def pid_of(token: str) -> int:
    """The process that claimed under this token (C-30)."""
    return int(token.split("-")[1].split("x", maxsplit=1)[0], 16)


class OwnerAudit:
    """Follows a store from `__enter__` to `__exit__`."""

    def __init__(self, valkey: ValkeyProcess) -> None:
        self.seen = Seen()
        self.running = False
        self._valkey = valkey
        self._socket = socket.create_connection(("127.0.0.1", valkey.port))
        self._thread = threading.Thread(target=self._follow, name="owner-audit", daemon=True)

    def __enter__(self) -> OwnerAudit:
        self._socket.sendall(b"MONITOR\r\n")
        self._thread.start()
        wait_until(lambda: self.running, 5, "MONITOR to run")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._socket.close()

    def _follow(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                self.running = True
                if b":session:" in line:
                    self.seen.read(_ARGUMENT.findall(line.decode("utf-8", "replace")))
