"""A front door, workers and a host on one real store with one shard, for tests of the ledger's rules.

Everything goes through the public builders of `ledger`; only time is bent, by writing lease ends directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import redis

from ledger import approvals, attempts, history, ownership, reconciliation, runs
from ledger.admission import AdmissionLimits, Admitted, Delivery, ProposedCall, admit_delivery
from ledger.attempts import BeginPolicy, Begun, Settled, Settlement, Voided, Work
from ledger.config import RedisConfig
from ledger.identity import delivery_identity, session_hash
from ledger.ownership import Claimed
from ledger.records import Approval, Entry, Event, Run, Session
from ledger.states import MutationStatus
from ledger.store import ScriptCall, StoreSettings, SyncStore
from ledger.store.codec import pack_record, unpack_record
from ledger.strict_json import check_arguments
from tests.support import snapshot
from tests.support.wait import wait_until

T = TypeVar("T")
SHARD = 0
SHARDS = 1
TENANT = "acme"
TOOL = "mcp__boards__create"
SEQ = "ml:{00}:seq"
LIMITS = AdmissionLimits(
    ceiling_ms=900_000,
    session_ms=880_000,
    approval_ms=300_000,
    journal_ms=86_400_000,
    inactivity_ms=30 * 86_400_000,
    max_live_runs=100,
    max_pending_approvals=100,
    policy_digest="policy-1",
    tombstone_key=b"k" * 32,
)
POLICY = BeginPolicy(
    digest="policy-1",
    tool_timeout_ms=60_000,
    drain_ms=5_000,
    lease_ms=30_000,
    wrap_up_ms=20_000,
    tombstone_ms=86_400_000,
)
COMPLETED, FAILED, UNKNOWN, NOT_EXECUTED = (
    MutationStatus.COMPLETED,
    MutationStatus.FAILED,
    MutationStatus.OUTCOME_UNKNOWN,
    MutationStatus.APPROVED,
)


def key(name: str) -> str:
    """A key of the one shard: `key("ready")` is `ml:{00}:ready`."""
    return f"ml:{{00}}:{name}"


def layout_of(name: str, field: str | bytes) -> str:
    """The layout of a field: `layout_of("run:1", "m")` is run_meta."""
    text = field.decode("latin-1") if isinstance(field, bytes) else field
    kind = name.partition(":")[0]
    if kind == "run":
        return {"m": "run_meta", "s": "run_state"}.get(text, "call")
    if kind == "approval":
        return "approval"
    return {"meta": "session", "c": "current"}.get(text) or {"t": "turn", "m": "entry", "d": "delivery"}[text[0]]


def sid_of(session: str, tenant: str = TENANT) -> str:
    """The hash that stands for a session in keys."""
    return session_hash(tenant, session)


def proposed(
    n: int = 0,
    *,
    tool: str = TOOL,
    protected: bool = True,
    level: str | None = None,
    rule: str | None = None,
    eligible: bool = False,
    text: str = "marker",
) -> ProposedCall:
    """A call that `n` makes distinct; its arguments hold `<text>-<n>`."""
    arguments = check_arguments({"title": f"{text}-{n}", "n": n})
    return ProposedCall(tool, arguments, protected, level, rule, eligible)


def plan(count: int = 1, **options: Any) -> list[ProposedCall]:
    """`count` distinct calls."""
    return [proposed(n, **options) for n in range(count)]


def delivery(
    calls: Sequence[ProposedCall] | None = None, *, session: str = "s1", did: str | None = "d1", **options: Any
) -> Delivery:
    """A delivery of `calls` (default: one protected call that nobody must approve) by dana through agent ops."""
    made = plan() if calls is None else list(calls)
    content = {
        "calls": [[call.tool, call.arguments] for call in made],
        "on_error": options.get("on_error", "stop"),
        "logical_turn_id": options.get("logical_turn_id"),
    }
    base = Delivery(TENANT, session, "ops", "dana", "agent", did, made, content)
    return replace(base, **options)


class Ledger:
    """One process that plays every part. `run` sends any call; the rest are shorthands with fixed names."""

    def __init__(self, url: str) -> None:
        self.store = SyncStore(StoreSettings(RedisConfig(url=url, shards=SHARDS)))
        self.store.open()
        self.raw: Any = redis.Redis.from_url(url, socket_timeout=5)
        self._nonces = (f"nonce{n}" for n in itertools.count(1))

    def close(self) -> None:
        """Closes every connection."""
        self.raw.close()
        self.store.close()

    def run(self, call: ScriptCall[T]) -> T:
        """Runs one call, confirmed."""
        return self.store.run(call)

    def snapshot(self) -> snapshot.Snapshot:
        """The whole store as a value."""
        return snapshot.take(self.raw)

    def where(self, text: str) -> list[str]:
        """Keys in which `text` can be read."""
        return snapshot.holders(self.snapshot(), text)

    def now(self) -> int:
        """The store's time, ms."""
        seconds, micros = self.raw.time()
        return int(seconds) * 1000 + int(micros) // 1000

    # front door

    def admit(self, calls: Sequence[ProposedCall] | None = None, **options: Any) -> Admitted:
        """Admits `delivery(calls, **options)`; `limits` overrides single limits."""
        limits = replace(LIMITS, **options.pop("limits", {}))
        return self.run(admit_delivery(delivery(calls, **options), limits, SHARDS))

    def decide(self, approval_id: str, decision: Literal["approve", "deny"] = "approve", **options: Any) -> Any:
        """Decides as bob, unless told otherwise."""
        by = options.pop("by", "bob")
        made = approvals.Decision(approval_id, options.pop("tenant", TENANT), decision, by, **options)
        return self.run(approvals.decide(made, SHARD))

    def approve_all(self, run: Run) -> None:
        """Approves every pending call of a run."""
        for call in self.read(run).calls:
            if call.status == "waiting_for_approval" and call.approval_id:
                self.decide(call.approval_id)

    def read(self, run: Run | str) -> Run:
        """The run as it is now."""
        run_id = run if isinstance(run, str) else run.run_id
        found = self.run(runs.read_run(SHARD, run_id, TENANT)).run
        assert found is not None
        return found

    def statuses(self, run: Run | str) -> list[str]:
        """Call statuses of a run, in order."""
        return [call.status.value for call in self.read(run).calls]

    def journal(self, run: Run | str) -> list[Event]:
        """All events of a run."""
        run_id = run if isinstance(run, str) else run.run_id
        return list(self.run(runs.read_journal(SHARD, run_id, TENANT, 0, 5000)).events)

    def cancel(self, run: Run) -> runs.CancelReply:
        """Cancels a run."""
        return self.run(runs.cancel_run(SHARD, run.run_id, TENANT))

    def approval(self, approval_id: str | None) -> Approval:
        """An approval by id."""
        assert approval_id is not None
        return self.run(approvals.read_approval(SHARD, TENANT, approval_id)).approvals[0]

    def outlast_requests(self) -> None:
        """Waits until the time of every pending request is over; nothing reads or sweeps them meanwhile."""
        ends = max(score for _, score in self.raw.zrange(key("approvals"), 0, -1, withscores=True))
        wait_until(lambda: self.now() >= ends, 5, "the requests to run out")

    # workers

    def claim(self, nonce: str | None = None, most: int = 16, *, policy: BeginPolicy = POLICY) -> list[Claimed]:
        """Claims as a worker, without promising to look again."""
        nonce = nonce or next(self._nonces)
        return list(self.run(ownership.claim_sessions(SHARD, nonce, most, policy, awake=False)).sessions)

    def claimable(self) -> bool:
        """Whether a session is ready for some worker."""
        return bool(self.raw.zcard(key("ready")))

    def begin_first(self, *, policy: BeginPolicy = POLICY) -> tuple[Begun, str]:
        """Claims the one ready session; its first call and the owner token."""
        (claimed,) = self.claim(policy=policy)
        return begun(claimed.work), claimed.token

    def begin(self, sid: str, token: str, step: int, **options: Any) -> Work:
        """Asks for the session's next call."""
        policy = options.pop("policy", POLICY)
        return self.run(attempts.begin_next(SHARD, sid, token, step, policy, **options))

    def settle(
        self,
        work: Begun,
        token: str,
        status: MutationStatus = COMPLETED,
        *,
        next_step: int | None = None,
        **options: Any,
    ) -> Settled:
        """Reports what an attempt came to; `options` are the fields of Settlement, `policy`, `yield_if_others`."""
        policy = options.pop("policy", POLICY)
        yields = options.pop("yield_if_others", False)
        settlement = Settlement(status, **options)
        call = attempts.settle_attempt(
            SHARD, work, token, settlement, next_step=next_step, policy=policy, yield_if_others=yields
        )
        return self.run(call)

    def void(self, work: Begun, token: str, step: int, **options: Any) -> Voided:
        """Puts an attempt back."""
        return self.run(attempts.void_attempt(SHARD, work.sid, token, step, work.attempt, **options))

    def finish(self, status: MutationStatus = COMPLETED) -> None:
        """Claims and settles everything that is ready, all with `status`."""
        while claimed := self.claim():
            for session in claimed:
                work: Work | None = session.work
                step = 2
                while isinstance(work, Begun):
                    work, step = self.settle(work, session.token, status, next_step=step).work, step + 1

    def end_leases(self) -> None:
        """Lets every lease end now."""
        for sid in self.raw.zrange(key("owned"), 0, -1):
            self.raw.zadd(key("owned"), {sid: 1})

    def sweep(self) -> ownership.SweepReply:
        """One sweep, whenever the last one was."""
        self.raw.delete(key("swept"))
        return self.run(ownership.sweep_shard(SHARD, POLICY.lease_ms))

    def reclaim(self) -> None:
        """Every owner is gone: leases end and a sweep finds them."""
        self.end_leases()
        self.sweep()

    # bending what is stored, for states that no call leaves behind

    def rewrite(self, name: str, field: str | bytes, changes: dict[str, Any]) -> None:
        """Changes fields of a packed record."""
        layout = layout_of(name, field)
        record = {**unpack_record(layout, self.raw.hget(key(name), field)), **changes}
        self.raw.hset(key(name), field, pack_record(layout, record))

    def reopen(self, run: Run, index: int) -> None:
        """Puts a call of a run that has ended back into the queue, as if its attempt had never been."""
        (call,) = [call for call in self.read(run).calls if call.index == index]
        self.rewrite(f"run:{run.run_id}", str(index), {"st": "q"})
        self.rewrite(f"run:{run.run_id}", "s", {"st": "queued", "i": index, "en": None, "er": None})
        sid = sid_of(run.session_id)
        self.raw.zadd(key(f"queue:{sid}"), {run.run_id: 1})
        self.raw.hset(key(f"args:{sid}"), f"{run.run_id}:{index}", "{}")
        assert call.status != "queued"

    def outlast(self, ms: int) -> None:
        """Waits until `ms` of the store's time have passed."""
        ends = self.now() + ms
        wait_until(lambda: self.now() >= ends, 5, f"{ms} ms of the store's time")

    # host

    def generation(self, session: str = "s1") -> int:
        """The session's generation."""
        found = self.session(session)
        assert found is not None
        return found.generation

    def find_run(self, did: str, session: str = "s1") -> Run:
        """The latest run of a delivery of dana's."""
        identity = bytes.fromhex(delivery_identity(TENANT, session, "ops", "dana", did))
        record = unpack_record("delivery", self.raw.hget(key(f"session:{sid_of(session)}"), b"d" + identity))
        return self.read(record["r"])

    def session(self, session: str = "s1", tenant: str = TENANT) -> Session | None:
        """The ledger of a session."""
        return self.run(history.read_session(tenant, session, SHARDS))

    def entry(self, work: Begun) -> Entry:
        """The ledger entry of an attempt's mutation."""
        assert work.logical_turn_id is not None
        found = self.run(history.read_turn(TENANT, work.session_id, work.logical_turn_id, SHARDS))
        assert found is not None
        return next(entry for turn in found.turns for entry in turn.entries if entry.mutation_id == work.mutation_id)

    def status(self, work: Begun) -> MutationStatus:
        """The stored status of an attempt's mutation."""
        return self.entry(work).status

    def reconcile(self, work: Begun, *, completed: bool, **options: Any) -> reconciliation.Reconciled:
        """Reconciles as a host."""
        turn = options.pop("turn", work.logical_turn_id or "")
        return self.run(
            reconciliation.reconcile_mutation(
                options.pop("tenant", TENANT),
                work.session_id,
                turn,
                work.mutation_id,
                completed=completed,
                by="host",
                shards=SHARDS,
                **options,
            )
        )

    def attach(self, work: Begun, metadata: dict[str, str], **options: Any) -> tuple[dict[str, Any], int]:
        """Attaches metadata as the agent and user of the attempt, by logical turn unless a delivery id is given."""
        target = reconciliation.Target(TENANT, work.session_id, work.agent, work.user, work.mutation_id)
        if "delivery_id" not in options:
            options.setdefault("logical_turn_id", work.logical_turn_id)
        return self.run(reconciliation.attach_metadata(replace(target, **options), metadata, SHARDS))

    def outcomes(self) -> list[dict[str, str]]:
        """Every entry of the outcome stream, oldest first."""
        rows = self.raw.xrange(key("outcomes"))
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in rows]


def begun(work: Work | None) -> Begun:
    """The work, which must be a call that was begun."""
    assert isinstance(work, Begun), work
    return work


def why(work: Work | None) -> str:
    """Why nothing was begun."""
    assert isinstance(work, attempts.Nothing), work
    return work.why
