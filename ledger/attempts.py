"""Begin, settle and put back: steps 5 and 7 of the path (C-10, C-13, C-22 to C-24)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ledger.handlers import HandlerOffer, HandlerStart
from ledger.long_integers import read_json
from ledger.states import MutationStatus
from ledger.store.call import ScriptCall
from ledger.store.codec import pack, pack_values, raw, unpack


@dataclass(frozen=True, slots=True)
class BeginPolicy:
    """What begin needs from the configuration; milliseconds. `execution_ms` None: no budget is registered (C-52).

    `budget_ceiling_ms` bounds a handler run from its admission once it makes an eligible call (C-50). `declared` is the
    version of the shard's declared tools that `digest` knows of; under another one begin refuses policy_stale (C-05).
    """

    digest: str
    tool_timeout_ms: int
    drain_ms: int
    lease_ms: int
    wrap_up_ms: int
    tombstone_ms: int
    execution_ms: int | None = None
    budget_ceiling_ms: int | None = None
    declared: int = 0

    @property
    def values(self) -> tuple[str | int | None, ...]:
        """This policy in a request of an owner: pd pv to dr le wr ex bc tb of its layout."""
        return (
            self.digest,
            self.declared,
            self.tool_timeout_ms,
            self.drain_ms,
            self.lease_ms,
            self.wrap_up_ms,
            self.execution_ms,
            self.budget_ceiling_ms,
            self.tombstone_ms,
        )


@dataclass(frozen=True, slots=True)
class Begun:
    """A call whose intent is written. `deadline` and `store_now` are store ms; `arguments` canonical JSON text.

    `mutation` (raw) and `turn` are None for an unprotected call: it leaves no entry.
    """

    sid: str
    run_id: str
    index: int
    tool: str
    arguments: str
    attempt: str
    step: int
    mutation: bytes
    turn: int | None
    logical_turn_id: str | None
    deadline: int
    store_now: int
    session_id: str
    agent: str
    user: str
    delivery_id: str | None
    traceparent: str | None

    @property
    def mutation_id(self) -> str:
        """The call's identity, hex (C-01)."""
        return self.mutation.hex()

    @property
    def protected(self) -> bool:
        """Whether an intent is on record."""
        return self.turn is not None

    def parsed_arguments(self) -> dict[str, Any]:
        """The arguments, exact (C-02)."""
        arguments: dict[str, Any] = read_json(self.arguments)
        return arguments


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """The call was admitted under another policy: resolve its protection again before begin (C-05).

    `arguments` is canonical JSON text: a host may decide the level by them.
    """

    run_id: str
    index: int
    tool: str
    protected: bool
    level: str | None
    arguments: str

    def parsed_arguments(self) -> dict[str, Any]:
        """The arguments, exact (C-02)."""
        arguments: dict[str, Any] = read_json(self.arguments)
        return arguments


@dataclass(frozen=True, slots=True)
class Nothing:
    """No call was begun: `released` or `yielded` (the session is given up), `lost`, `again` (ask once more).

    `unreadable`: a newer version wrote in this session; it is tried again when its lease ends. `stopped` is a
    worker's own word: it asked for nothing more.
    """

    why: Literal["released", "yielded", "lost", "again", "unreadable", "stopped"]


@dataclass(frozen=True, slots=True)
class Parked:
    """Nothing to begin now, but the session stays owned: handlers live in it, or wait for a place to start (C-31).

    `news` is the number that renewals of the session carry now; another one says that something changed.
    """

    news: int


Work = Begun | PolicyCheck | HandlerStart | Parked | Nothing


def read_work(packed: bytes) -> Work:
    """Reads what a script says an owner shall do next."""
    w = unpack(packed)
    if isinstance(w, list):
        return _begun(*w)
    match w["k"]:
        case "check":
            return PolicyCheck(w["run"], w["i"], w["tl"], bool(w["pr"]), w["lv"] or None, w["args"] or "{}")
        case "handler":
            return HandlerStart.read(w)
        case "parked":
            return Parked(w["w"])
        case why:
            return Nothing(why)


def _begun(
    sid: str,
    run_id: str,
    index: int,
    tool: str,
    arguments: str | None,
    attempt: str,
    step: int,
    mutation: str,
    turn: int | None,
    logical_turn_id: str | None,
    deadline: int,
    store_now: int,
    session_id: str,
    agent: str,
    user: str,
    delivery_id: str | None,
    traceparent: str | None,
) -> Begun:
    """A call as `work_reply` of `ledger/lua/lib/begin.lua` tells it; what it does not have is false there."""
    return Begun(
        sid,
        run_id,
        index,
        tool,
        arguments or "{}",
        attempt,
        step,
        raw(mutation),
        turn or None,
        logical_turn_id or None,
        int(deadline),
        int(store_now),
        session_id,
        agent,
        user,
        delivery_id or None,
        traceparent or None,
    )


@dataclass(frozen=True, slots=True)
class Reprotected:
    """A call's protection, resolved again by the worker; `approval_id` is used if a person must be asked now."""

    run_id: str
    index: int
    protected: bool
    level: str | None
    approval_id: str
    approval_ms: int


def begin_next(
    shard: int,
    sid: str,
    token: str,
    step: int,
    policy: BeginPolicy,
    *,
    yield_if_others: bool = False,
    reprotected: Reprotected | None = None,
    offer: HandlerOffer | None = None,
    only_live: bool = False,
) -> ScriptCall[Work]:
    """Begins the session's next call or one of the handlers that `offer` has room for, or gives the session up.

    `only_live`: nothing but calls that handlers of this owner asked for, as at a warm stop (C-34).

    Raises when run, Refused with: lease_lost, stale_step, attempt_voided, policy_stale.
    """
    found = None
    if reprotected is not None:
        found = {
            "run": reprotected.run_id,
            "i": reprotected.index,
            "pr": reprotected.protected or None,
            "lv": reprotected.level,
            "to": reprotected.approval_ms,
        }
    request = (
        sid,
        token,
        step,
        *policy.values,
        yield_if_others or None,
        offer.packed if offer else None,
        only_live or None,
        found,
        reprotected.approval_id if reprotected else None,
    )
    return ScriptCall.of("begin_next", shard, pack_values(request), decode=lambda reply: read_work(reply[1]))


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an attempt came to. `status` APPROVED means proven non-execution, `refusal` the code shown with it.

    `result` is the tool's own content as JSON text, or None.
    """

    status: MutationStatus
    reason: str | None = None
    result: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """Answer to a settlement; `work` is the next call when one was asked for, `refused` why none was begun.

    `how`: settled, repeated (C-22), late (first-hand after reclaim), kept (reconciled before: evidence only).
    """

    how: Literal["settled", "repeated", "late", "kept"]
    record: str | None
    revision: int
    work: Work | None
    refused: str | None


def settle_attempt(
    shard: int,
    begun: Begun,
    token: str,
    settlement: Settlement,
    *,
    next_step: int | None,
    policy: BeginPolicy,
    yield_if_others: bool = False,
    offer: HandlerOffer | None = None,
    only_live: bool = False,
) -> ScriptCall[Settled]:
    """Settles an attempt and, with `next_step`, begins the next call in the same step as `begin_next` would (C-24).

    Raises when run, Refused with attempt_mismatch: the entry belongs to another attempt, or the session is gone.
    """
    protected = begun.protected
    request = (
        begun.sid,
        token,
        begun.attempt,
        begun.run_id,
        begun.index,
        begun.turn,
        begun.mutation if protected else None,
        begun.mutation_id if protected else None,
        settlement.status.code,
        settlement.reason,
        settlement.result,
        settlement.refusal,
        next_step is not None or None,
        next_step,
        *policy.values,
        yield_if_others or None,
        offer.packed if offer else None,
        only_live or None,
    )

    def decode(reply: list[Any]) -> Settled:
        _, how, record, revision, work, refused = reply
        return Settled(
            how.decode(),
            record.decode() or None,
            revision,
            read_work(work) if work else None,
            refused.decode() or None,
        )

    return ScriptCall.of("settle_attempt", shard, pack_values(request), decode=decode)


@dataclass(frozen=True, slots=True)
class Voided:
    """Answer to a put-back: `voided` a landed intent went back to approved, `nothing` none had landed (yet)."""

    how: Literal["voided", "nothing", "repeated"]
    record: str | None
    revision: int


def void_attempt(
    shard: int,
    sid: str,
    token: str,
    step: int,
    attempt: str,
    *,
    reason: str | None = None,
    refusal: str | None = None,
) -> ScriptCall[Voided]:
    """Puts an attempt back; one that lands later is refused, its approval stays consumed (C-23).

    Raises when run, Refused with: lease_lost, stale_step.
    """
    request = {"sid": sid, "tk": token, "st": step, "at": attempt, "rs": reason, "cd": refusal}

    def decode(reply: list[Any]) -> Voided:
        return Voided(reply[1].decode(), reply[2].decode() or None, reply[3])

    return ScriptCall.of("void_attempt", shard, pack(request), decode=decode)
