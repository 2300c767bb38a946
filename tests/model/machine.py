"""A Hypothesis state machine: front doors, people, three workers and a host, in any order, on the real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger import reconciliation
from ledger.admission import admit_delivery
from ledger.attempts import Begun, Settled, Settlement, Work, begin_next, settle_attempt
from ledger.errors import Refused
from ledger.identity import mutation_identity_of
from ledger.ownership import claim_sessions, release_sessions, renew_leases
from ledger.states import CallStatus, MutationStatus, RunStatus
from ledger.store import ScriptCall
from tests.model import checks
from tests.model.reference import REFUSALS, Reference
from tests.support.ledger import LIMITS, POLICY, SHARD, SHARDS, Ledger, delivery, key, proposed, why

T = TypeVar("T")
SESSIONS = ["s1", "s2"]
KINDS: dict[str, dict[str, Any]] = {
    "protected": {},
    "asked": {"level": "approve"},
    "ruled": {"level": "approve", "rule": "small"},
    "repeatable": {"protected": False},
}
CALLS = st.tuples(st.integers(0, 4), st.sampled_from(["protected", *KINDS]))
PLANS = st.lists(CALLS, min_size=1, max_size=4)
STATUSES = st.sampled_from(
    [MutationStatus.COMPLETED, MutationStatus.FAILED, MutationStatus.OUTCOME_UNKNOWN, MutationStatus.APPROVED]
)
PICK = st.integers(0, 7)


@dataclass(slots=True)
class Owner:
    """A session in a worker's hands; `step` is the last step it used."""

    sid: str
    token: str
    step: int = 1


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt and the token of who started it."""

    work: Begun
    token: str


class LedgerMachine(RuleBasedStateMachine):
    """Drives the store and the reference side by side; after every step both are compared in full."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        client: Any = redis.Redis.from_url(self.url)
        client.flushall()
        client.close()
        self.ledger = Ledger(self.url)
        self.reference = Reference()
        self.runs: list[str] = []
        self.latest: dict[tuple[str, str], str] = {}
        self.plans: dict[tuple[str, str], tuple[list[tuple[int, str]], str, str | None]] = {}
        self.owners: dict[str, Owner] = {}
        self.flights: dict[str, Flight] = {}
        self.adrift: list[Flight] = []
        self.nonces = 0
        self.counter = checks.counter(self.ledger)

    def teardown(self) -> None:
        """Closes the connections of this example."""
        self.ledger.close()

    # hosts

    @initialize(one=PLANS, other=PLANS, stop=st.booleans())
    def begin_with(self, one: list[tuple[int, str]], other: list[tuple[int, str]], stop: bool) -> None:
        """Two sessions have work, and a worker has claimed it."""
        self.deliver(session="s1", did="d0", plan=one, stop=stop)
        self.deliver(session="s2", did="d0", plan=other, stop=not stop)
        self.claim()

    @rule(
        session=st.sampled_from(SESSIONS),
        did=st.sampled_from([f"d{n}" for n in range(5)]),
        plan=PLANS,
        stop=st.booleans(),
    )
    def deliver(self, session: str, did: str, plan: list[tuple[int, str]], stop: bool) -> None:
        """A delivery, or the same again: attached while its run lives, a new run afterwards (C-60)."""
        self._deliver(session, did, plan, "stop" if stop else "continue", None)

    @precondition(lambda self: self.reference.revisions)
    @rule(turn=PICK, did=st.sampled_from(["c0", "c1"]), plan=PLANS)
    def continue_turn(self, turn: int, did: str, plan: list[tuple[int, str]]) -> None:
        """A delivery that continues a turn (C-63)."""
        name = pick(list(self.reference.revisions), turn)
        session = next(s for s in SESSIONS if name in self._turns(s))
        self._deliver(session, did, plan, "continue", name)

    def _deliver(self, session: str, did: str, plan: list[tuple[int, str]], on_error: str, turn: str | None) -> None:
        known = (session, did)
        plan, on_error, turn = self.plans.setdefault(known, (plan, on_error, turn))
        calls = [proposed(n, **KINDS[kind]) for n, kind in plan]
        made = delivery(calls, session=session, did=did, on_error=on_error, logical_turn_id=turn)
        call = admit_delivery(made, LIMITS, SHARDS)
        before = self.latest.get(known)
        live = before is not None and not self.ledger.read(before).status.ended
        admitted = self.ledger.run(call)
        assert admitted.how == ("new" if before is None else "attached" if live else "redelivered")
        if live:
            assert admitted.run.run_id == before
            return
        self.latest[known] = admitted.run.run_id
        self.runs.append(admitted.run.run_id)
        for asked, shown in zip(calls, admitted.run.calls, strict=True):
            assert shown.mutation_id == mutation_identity_of(asked.tool, asked.arguments)
            recorded = self.reference.mutations.get((admitted.run.logical_turn_id or "", shown.mutation_id))
            refusal = REFUSALS.get(recorded.status) if recorded and recorded.status and asked.protected else None
            assert shown.refusal == refusal
        assert self.ledger.run(call).run.run_id == admitted.run.run_id

    @precondition(lambda self: self.reference.mutations)
    @rule(which=PICK, completed=st.booleans(), stopped=st.booleans())
    def reconcile(self, which: int, completed: bool, stopped: bool) -> None:
        """A host says what happened (C-91)."""
        turn, mutation = pick(list(self.reference.mutations), which)
        call = reconciliation.reconcile_mutation(
            "acme",
            next(s for s in SESSIONS if turn in self._turns(s)),
            turn,
            mutation,
            completed=completed,
            by="host",
            shards=SHARDS,
            dispatcher_stopped=stopped,
        )
        expected = self.reference.reconcile((turn, mutation), completed=completed, stopped=stopped)
        answer = self._answer(call)
        assert (answer if isinstance(answer, str) else answer.how) == expected

    @precondition(lambda self: self.reference.mutations)
    @rule(which=PICK, title=st.sampled_from(["one", "two"]))
    def attach(self, which: int, title: str) -> None:
        """A host attaches metadata (C-90)."""
        turn, mutation = pick(list(self.reference.mutations), which)
        session = next(s for s in SESSIONS if turn in self._turns(s))
        target = reconciliation.Target("acme", session, "ops", "dana", mutation, logical_turn_id=turn)
        self.ledger.run(reconciliation.attach_metadata(target, {"title": title}, SHARDS))
        self.reference.attach((turn, mutation), {"title": title})

    @precondition(lambda self: self.runs)
    @rule(which=PICK)
    def cancel(self, which: int) -> None:
        """Cancelling: what is not begun never begins (C-55)."""
        run = self.ledger.read(pick(self.runs, which))
        reply = self.ledger.cancel(run)
        running = any(call.status is CallStatus.RUNNING for call in run.calls)
        if run.status.ended:
            assert reply.answer == ("cancelled" if run.status is RunStatus.CANCELLED else "ended")
        else:
            assert reply.answer == ("cancelling" if running else "cancelled")

    # people

    @precondition(lambda self: self.ledger.raw.zcard(key("approvals")))
    @rule(which=PICK, decision=st.sampled_from(["approve", "approve", "deny"]), by=st.sampled_from(["bob", "carol"]))
    def decide(self, which: int, decision: Literal["approve", "deny"], by: str) -> None:
        """Somebody decides; the same again is answered the same (C-41)."""
        approval_id = pick(self._pending(), which)
        state = "approved" if decision == "approve" else "denied"
        for how in ("decided", "repeated"):
            decided = self.ledger.decide(approval_id, decision, by=by)
            assert (decided.how, decided.approval.state) == (how, state)
        self.reference.decide(approval_id, state)

    @precondition(lambda self: self.ledger.raw.zcard(key("approvals")))
    @rule(which=PICK, met_by=st.sampled_from(["sweep", "read", "decide"]))
    def run_out(self, which: int, met_by: str) -> None:
        """A request's time is over, and somebody meets it (C-41)."""
        approval_id = pick(self._pending(), which)
        asked = self.ledger.approval(approval_id)
        self.ledger.rewrite(f"approval:{approval_id}", "a", {"ex": 1})
        self.ledger.rewrite(f"run:{asked.run_id}", str(asked.index), {"ex": 1})
        self.ledger.raw.zadd(key("approvals"), {approval_id: 1})
        match met_by:
            case "sweep":
                self.ledger.sweep()
            case "read":
                self.ledger.read(asked.run_id)
            case _:
                assert self.ledger.decide(approval_id).how == "expired"
        assert self.ledger.approval(approval_id).state == "expired"
        self.reference.decide(approval_id, "expired")

    # workers

    @rule()
    def claim(self) -> None:
        """A worker claims what is ready; the same claim again gets the same work (C-30)."""
        self.nonces += 1
        call = claim_sessions(SHARD, f"w{self.nonces % 3}x{self.nonces}", len(SESSIONS), POLICY, awake=False)
        first = self.ledger.run(call).sessions
        for row in sorted(first, key=lambda row: row.sid):
            assert row.sid not in self.owners
            self.owners[row.sid] = Owner(row.sid, row.token)
            self._given(self.owners[row.sid], row.work)
        again = self.ledger.run(call).sessions
        if first:
            assert [(row.sid, row.token, timeless(row.work)) for row in again] == [
                (row.sid, row.token, timeless(row.work)) for row in first
            ]
        else:
            assert not again

    @precondition(lambda self: self.flights)
    @rule(which=PICK, status=STATUSES, go_on=st.booleans(), yields=st.booleans(), again=st.booleans())
    def settle(self, which: int, status: MutationStatus, go_on: bool, yields: bool, again: bool) -> None:
        """An owner reports its attempt and perhaps goes on (C-24)."""
        sid = pick(sorted(self.flights), which)
        flight, owner = self.flights.pop(sid), self.owners[sid]
        expected = self.reference.report(flight.work, status) if flight.work.protected else "settled"
        call = report(flight, status, owner.step + 1 if go_on else None, yields=yields)
        settled = self.ledger.run(call)
        assert settled.how == expected
        self.adrift.append(flight)
        if go_on:
            owner.step += 1
            assert settled.work is not None
            self._given(owner, settled.work)
        if again:
            repeated = self.ledger.run(call)
            assert repeated.how == ("kept" if expected == "kept" else "repeated")
            assert (timeless(repeated.work), repeated.record, repeated.revision) == (
                timeless(settled.work),
                settled.record,
                settled.revision,
            )

    @rule(status=STATUSES, approve=st.booleans())
    def work_on(self, status: MutationStatus, approve: bool) -> None:
        """The ordinary course of things, so that an example gets somewhere: approve, claim, settle, go on."""
        for approval_id in self._pending() if approve else []:
            self.ledger.decide(approval_id)
            self.reference.decide(approval_id, "approved")
        if not self.flights:
            self.claim()
        for which in range(len(self.flights)):
            self.settle(which=which, status=status, go_on=True, yields=False, again=False)

    @precondition(lambda self: self.adrift)
    @rule(which=PICK, status=STATUSES)
    def report_late(self, which: int, status: MutationStatus) -> None:
        """Somebody reports an attempt that is over, or that was taken from it: that counts once (C-32)."""
        flight = pick(self.adrift, which)
        expected = self.reference.report(flight.work, status) if flight.work.protected else "repeated"
        owner = self.owners.get(flight.work.sid)
        stranger = owner is None or owner.token != flight.token
        answer = self._answer(report(flight, status, 10_000 if stranger else None))
        if expected == "attempt_mismatch":
            assert answer == expected
        else:
            assert (answer.how, why(answer.work) if stranger else "lost") == (expected, "lost")

    @precondition(lambda self: self.flights)
    @rule(which=PICK)
    def put_back(self, which: int) -> None:
        """An intent was not confirmed in time (C-23)."""
        sid = pick(sorted(self.flights), which)
        flight, owner = self.flights.pop(sid), self.owners[sid]
        owner.step += 1
        voided = self.ledger.void(flight.work, flight.token, owner.step)
        assert voided.how == "voided"
        if flight.work.protected:
            self.reference.put_back(flight.work)
        repeated = self.ledger.void(flight.work, flight.token, owner.step)
        assert (repeated.how, repeated.record, repeated.revision) == ("repeated", voided.record, voided.revision)
        self.adrift.append(flight)

    @precondition(lambda self: self.owners)
    @rule(which=PICK, back=st.integers(0, 2))
    def begin(self, which: int, back: int) -> None:
        """An owner asks for more; with a call in flight or an old step it gets nothing (C-23, C-31)."""
        owner = self.owners[pick(sorted(self.owners), which)]
        step = owner.step + 1 - back
        call = begin_next(SHARD, owner.sid, owner.token, step, POLICY)
        if back == 0 and owner.sid not in self.flights:
            owner.step = step
            work = self.ledger.run(call)
            self._given(owner, work)
            assert timeless(self.ledger.run(call)) == timeless(work)
        elif back == 0:
            assert self._answer(call) == "call_in_flight"
        elif back == 1 and owner.sid in self.flights and self.flights[owner.sid].work.step == step:
            self._same_again(call, self.flights[owner.sid].work)
        else:
            assert self._answer(call) in ("stale_step", "attempt_voided", "call_in_flight")

    @precondition(lambda self: self.owners)
    @rule(which=PICK, clean=st.booleans())
    def lose(self, which: int, clean: bool) -> None:
        """An owner stops, or dies and its lease ends (C-33)."""
        owner = self.owners.pop(pick(sorted(self.owners), which))
        flight = self.flights.pop(owner.sid, None)
        if flight is not None:
            self.reference.owner_lost(flight.work)
            self.adrift.append(flight)
        if clean:
            self.ledger.run(release_sessions(SHARD, [(owner.sid, owner.token)]))
        else:
            self.ledger.raw.zadd(key("owned"), {owner.sid: 1})
            assert self.ledger.sweep().reclaimed == 1
        assert self._answer(begin_next(SHARD, owner.sid, owner.token, owner.step + 1, POLICY)) == "lease_lost"

    @precondition(lambda self: self.owners)
    @rule(which=PICK)
    def renew(self, which: int) -> None:
        """A renewal keeps what is held and nothing else (C-30)."""
        owner = self.owners[pick(sorted(self.owners), which)]
        rows = [(owner.sid, owner.token), (owner.sid, owner.token + "x")]
        assert [row.held for row in self.ledger.run(renew_leases(SHARD, rows, 30_000))] == [True, False]

    def _given(self, owner: Owner, work: Work) -> None:
        """What an owner is handed: one call, or the end of its ownership."""
        if isinstance(work, Begun):
            assert owner.sid not in self.flights
            assert (work.step, work.attempt) == (owner.step, f"{owner.token}-{owner.step}")
            self.reference.begun(work, self.ledger.read(work.run_id).calls[work.index])
            self.flights[owner.sid] = Flight(work, owner.token)
        else:
            assert why(work) in ("released", "yielded")
            del self.owners[owner.sid]

    def _same_again(self, call: ScriptCall[Work], work: Begun) -> None:
        """A begin sent again: the same work, or none once somebody reconciled it."""
        mutation = self.reference.of(work) if work.protected else None
        if mutation is not None and mutation.reconciled:
            assert self._answer(call) == "attempt_voided"
        else:
            assert timeless(self.ledger.run(call)) == timeless(work)

    def _answer(self, call: ScriptCall[Any]) -> Any:
        """The answer, or the code of the refusal."""
        try:
            return self.ledger.run(call)
        except Refused as refused:
            return refused.code

    def _turns(self, session: str) -> set[str]:
        found = self.ledger.session(session)
        return {turn.logical_turn_id for turn in found.turns} if found else set()

    def _pending(self) -> list[str]:
        """Requests by run and call: ids are random, and a choice must be the same in every replay of an example."""
        pending = {one.decode() for one in self.ledger.raw.zrange(key("approvals"), 0, -1)}
        shown = [call.approval_id for run in self.runs for call in self.ledger.read(run).calls]
        return [approval_id for approval_id in shown if approval_id is not None and approval_id in pending]

    @invariant()
    def everything_holds(self) -> None:
        """The store against the reference and against itself."""
        world = checks.look(self.ledger, SESSIONS, self.runs)
        checks.entries_are_the_reference_s(world, self.reference)
        checks.stream_tells_every_change(world)
        checks.owners_are(world, {sid: owner.token for sid, owner in self.owners.items()})
        flying = {sid: (flight.work.run_id, flight.work.index) for sid, flight in self.flights.items()}
        checks.one_call_is_in_flight_a_session(world, flying)
        checks.queues_hold_what_can_go_on(world)
        checks.requests_are_those_of_waiting_calls(world)
        checks.arguments_are_those_of_open_and_unknown_calls(world)
        checks.unknowns_are_listed(world)
        before, self.counter = self.counter, checks.counter(self.ledger)
        assert self.counter >= before


def report(flight: Flight, status: MutationStatus, step: int | None, *, yields: bool = False) -> ScriptCall[Settled]:
    """The settlement of an attempt under the token that started it."""
    settlement = Settlement(status, result="1" if status is MutationStatus.COMPLETED else None)
    return settle_attempt(
        SHARD, flight.work, flight.token, settlement, next_step=step, policy=POLICY, yield_if_others=yields
    )


def timeless(work: Work | None) -> Work | None:
    """Work without the store's time, which is told anew each time."""
    return replace(work, store_now=0) if isinstance(work, Begun) else work


def pick(options: Sequence[T], which: int) -> T:
    """One of the options; `which` may be larger than their number."""
    return options[which % len(options)]
