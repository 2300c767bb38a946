"""For every invariant one deliberate break of the code, and the row of the matrix that must see it.

A harness that cannot fail proves nothing. `make fault-breaks` makes each break in a copy of the tree and plays its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

INVARIANTS = tuple(f"I{number}" for number in range(1, 10))
LANES, OWNER = "ledger/store/lanes.py", "workers/owner.py"


@dataclass(frozen=True)
class FaultBreak:
    """`old` stands exactly once in the file `path`; with `new` there `row` with `options` sees `invariant` violated."""

    invariant: str
    why: str
    path: str
    old: str
    new: str
    row: str
    options: Mapping[str, Any] = field(default_factory=dict)


BREAKS = (
    FaultBreak(
        "I1",
        "a call whose reply was lost is sent again",
        OWNER,
        "        reply = await self.shared.router.call(begun.tool, begun.parsed_arguments(), context)\n",
        "        reply = await self.shared.router.call(begun.tool, begun.parsed_arguments(), context)\n"
        "        if reply.verdict is Verdict.OUTCOME_UNKNOWN:\n"
        "            reply = await self.shared.router.call(begun.tool, begun.parsed_arguments(), context)\n",
        "20",
        {"stdio": ["ok", "exit"], "http": ["drop"]},
    ),
    FaultBreak(
        "I2",
        "workers do not wait until the replica holds an intent",
        LANES,
        "        if waits:\n"
        "            commands += settings.aof_commands()\n"
        "        replies = await lane.exchange(commands)\n"
        "        unconfirmed = None\n"
        "        if waits:\n",
        "        replies = await lane.exchange(commands)\n        unconfirmed = None\n        if False:\n",
        "15 in step",
    ),
    FaultBreak(
        "I3",
        "front doors acknowledge what the replica does not hold",
        "ledger/store/group.py",
        "        waits = self._settings().waits_aof(self._server.report)\n",
        "        waits = False\n",
        "15 in step",
    ),
    FaultBreak(
        "I4",
        "what a dead worker left started is published as not executed",
        "ledger/lua/lib/report.lua",
        "      apply_status(S, R, current.t, current.m, entry, 'u', nil, now)",
        "      apply_status(S, R, current.t, current.m, entry, 'a', nil, now)",
        "1",
        {"points": ["reply.received", "settle.asked"]},
    ),
    FaultBreak(
        "I5",
        "a begin under an old fencing token is accepted",
        "ledger/lua/lib/begin.lua",
        "  if S.owner ~= token then refuse('LEASE_LOST', 'another owner or none') end\n",
        "",
        "4",
        {"rounds": 1},
    ),
    FaultBreak(
        "I6",
        "a cursor below the floor is no gap",
        "ledger/consumer/reading.py",
        "    if read.floor is not None and not fresh and id_key(position) < id_key(read.floor):",
        "    if read.floor is not None and fresh and id_key(position) < id_key(read.floor):",
        "23",
        {"rounds": 1},
    ),
    FaultBreak(
        "I7",
        "whoever asked may approve",
        "ledger/lua/decide_approval.lua",
        "if not q.rq and (q.by == approval.p or q.by == approval.u) then",
        "if not q.rq and q.by == approval.u then",
        "24",
        {"rounds": 1},
    ),
    FaultBreak(
        "I8",
        "workers look at the store's settings once and never again",
        "ledger/store/lane.py",
        "        return time.monotonic() - self.checked_at > RECHECK_SECONDS",
        "        return self.checked_at < 0",
        "17 settings",
        {"promises": {"maxmemory-policy": ["allkeys-lru", "noeviction"]}},
    ),
    FaultBreak(
        "I9",
        "a log line holds the arguments of a call",
        OWNER,
        '        reach("dispatch.due")\n',
        '        reach("dispatch.due")\n        log.warning("dispatch", arguments=begun.parsed_arguments())\n',
        "17 scripts",
        {"rounds": 1},
    ),
)
