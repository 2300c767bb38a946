"""Handler runs: started by begin, asking for calls, watched while they wait, ended with a narration (C-31, C-33)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.identity import mutation_identity_of
from ledger.long_integers import read_json, write_json
from ledger.states import CALL_BY_CODE, CallStatus
from ledger.store.call import ScriptCall
from ledger.store.codec import pack, unpack

NARRATION_BYTES = 65_536
"""Most bytes of a narration, as JSON (C-71)."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class HandlerOffer:
    """What a worker may be given to start: `handlers` in all, `sync` of those named in `sync_names`.

    `replayable` names handlers that are run again even when an intent of theirs is on record (C-33).
    """

    handlers: int
    sync: int
    sync_names: frozenset[str] = frozenset()
    replayable: frozenset[str] = frozenset()

    @property
    def packed(self) -> dict[str, Any]:
        """The part of a begin request that scripts read as `hd`."""
        packed: dict[str, Any] = {"n": self.handlers, "y": self.sync}
        if self.sync_names:
            packed["sy"] = dict.fromkeys(self.sync_names, True)
        if self.replayable:
            packed["rp"] = dict.fromkeys(self.replayable, True)
        return packed


@dataclass(frozen=True, slots=True)
class HandlerStart:
    """A handler run that is the asker's to run now. Times are store ms; `input_json` as `handler_input` made it.

    `session_left` is what is left of the run's session clock, ms. `earlier_starts` counts owners that were lost.
    `news` is the number that renewals of the session carry now.
    """

    sid: str
    run_id: str
    handler: str
    step: int
    session_id: str
    agent: str
    user: str
    principal: str
    delivery_id: str | None
    logical_turn_id: str | None
    traceparent: str | None
    input_json: str | None
    ceiling: int
    session_left: int
    store_now: int
    earlier_starts: int
    news: int

    @classmethod
    def read(cls, w: dict[str, Any]) -> HandlerStart:
        """Reads a script's work of kind `handler`."""
        return cls(
            sid=w["sid"],
            run_id=w["run"],
            handler=w["h"],
            step=w["st"],
            session_id=w["s"],
            agent=w["a"],
            user=w["u"],
            principal=w["p"],
            delivery_id=w["di"] or None,
            logical_turn_id=w["turn"] or None,
            traceparent=w["tp"] or None,
            input_json=w["args"] or None,
            ceiling=int(w["ce"]),
            session_left=int(w["lf"]),
            store_now=int(w["now"]),
            earlier_starts=w["rn"],
            news=w["w"],
        )

    def parsed_input(self) -> tuple[str | None, Any]:
        """Text and input of the delivery, numbers exact (C-02)."""
        if self.input_json is None:
            return None, None
        text, value = read_json(self.input_json)
        return text, value


def handler_input(text: str | None, value: Any) -> str:
    """Text and input of a delivery as they are stored, apart from the run (C-83).

    Raises ValueError for what JSON cannot hold; a front door has refused that before.
    """
    return write_json([text, value], _ENCODER)


@dataclass(frozen=True, slots=True)
class CallReport:
    """What the ledger says of one call of a handler run. Times are store ms.

    `record` is the `mutation_outcome/v1` record where one belongs to the call; `result` the tool's own content.
    """

    index: int
    status: CallStatus
    refusal: str | None
    approval_id: str | None
    session_left: int
    store_now: int
    logical_turn_id: str | None
    result: Any
    record: dict[str, Any] | None

    @classmethod
    def read(cls, r: dict[str, Any]) -> CallReport:
        """Reads a script's report."""
        return cls(
            index=r["i"],
            status=CALL_BY_CODE[r["st"]],
            refusal=r["rf"] or None,
            approval_id=r["ap"] or None,
            session_left=int(r["lf"]),
            store_now=int(r["now"]),
            logical_turn_id=r["turn"] or None,
            result=json.loads(r["res"]) if r["res"] else None,
            record=json.loads(r["o"]) if r["o"] else None,
        )


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call as the worker's policy resolved it. `ordinal` counts the calls of this start, from 0.

    `tool` is canonical (C-03), `arguments` canonical JSON text (C-02). `approval_id` is used if a person is asked.
    """

    ordinal: int
    tool: str
    arguments: str
    protected: bool
    level: str | None
    rule: str | None
    budget_eligible: bool
    approval_id: str

    @property
    def mutation_id(self) -> str:
        """The call's identity, hex (C-01)."""
        return mutation_identity_of(self.tool, self.arguments)


def propose_call(
    shard: int,
    sid: str,
    token: str,
    run_id: str,
    call: HandlerCall,
    *,
    policy_digest: str,
    approval_ms: int,
    max_pending_approvals: int,
    declared: int = 0,
    budget_ceiling_ms: int | None = None,
) -> ScriptCall[CallReport]:
    """Asks for a call; the same ordinal and mutation find the call that is there already (C-44).

    `declared` is the version of the shard's declared tools that the call was resolved under (C-05).

    Raises when run, Refused with: lease_lost, run_ended, call_in_flight, call_limit, replay_diverged, policy_stale.
    """
    request = {
        "sid": sid,
        "tk": token,
        "run": run_id,
        "o": call.ordinal,
        "t": call.tool,
        "m": bytes.fromhex(call.mutation_id),
        "a": call.arguments,
        "pr": call.protected or None,
        "lv": call.level,
        "ru": call.rule,
        "ap": call.approval_id,
        "el": call.budget_eligible or None,
        "pd": policy_digest,
        "pv": declared,
        "bc": budget_ceiling_ms,
        "to": approval_ms,
        "lp": max_pending_approvals,
    }
    return ScriptCall.of("propose_call", shard, pack(request), decode=lambda reply: CallReport.read(unpack(reply[1])))


@dataclass(frozen=True, slots=True)
class Watched:
    """What was found, in the order asked: a report, or a word.

    The word is the status the run ended with, `cancelling`, `gone`, or `running` when no call is waited for. `news` is
    the number that renewals of the session carried at that moment.
    """

    news: int
    answers: tuple[CallReport | str, ...]


def watch_handlers(shard: int, sid: str, token: str, rows: Sequence[tuple[str, int]]) -> ScriptCall[Watched]:
    """Reads what became of the calls that live handlers wait for; rows `(run, call index or -1)`, answers in order.

    Raises when run, Refused with lease_lost.
    """

    def decode(reply: list[Any]) -> Watched:
        answers = unpack(reply[2]) or []
        found = (answer if isinstance(answer, str) else CallReport.read(answer) for answer in answers)
        return Watched(reply[1], tuple(found))

    return ScriptCall.of("watch_handlers", shard, pack({"sid": sid, "tk": token, "rows": rows}), decode=decode)


@dataclass(frozen=True, slots=True)
class Ended:
    """Answer to the end of a handler run; `over`: something else had ended it, `status` says how."""

    how: Literal["ended", "repeated", "over"]
    status: str


def end_handler(
    shard: int,
    sid: str,
    token: str,
    run_id: str,
    *,
    failed: bool,
    code: str | None = None,
    narration: str | None = None,
) -> ScriptCall[Ended]:
    """Ends the run and stores its narration (JSON text, at most `NARRATION_BYTES`) in one step (C-25, C-70).

    Raises when run, Refused with: lease_lost, run_ended, call_in_flight.
    """
    request = {"sid": sid, "tk": token, "run": run_id, "er": failed or None, "cd": code, "nr": narration}
    return ScriptCall.of(
        "end_handler",
        shard,
        pack(request),
        decode=lambda reply: Ended(reply[1].decode(), reply[2].decode()),
    )
