"""The same machine with the ends of sessions: erasure and expiry, and who comes too late for them (C-81 to C-84)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from ledger.admission import admit_delivery
from ledger.approvals import read_approval
from ledger.attempts import Nothing, Settled, begin_next, void_attempt
from ledger.erasure import erase_session, sweep_retention
from ledger.runs import read_run
from ledger.states import MutationStatus
from tests.model.machine import PICK, PLANS, SESSIONS, STATUSES, Flight, LedgerMachine, Owner, pick, report
from tests.support.ledger import LIMITS, POLICY, SHARD, SHARDS, TENANT, delivery, key, proposed, sid_of

TOMBSTONE_MS = 86_400_000
EVERYTHING = 1_000_000


class EndingMachine(LedgerMachine):
    """Keeps what was left behind by sessions that ended: none of it may come back."""

    def __init__(self) -> None:
        super().__init__()
        self.retired: set[tuple[str, str]] = set()
        self.gone_turns: set[str] = set()
        self.gone_runs: list[str] = []
        self.session_of: dict[str, str] = {}
        self.gone_approvals: list[str] = []
        self.late_flights: list[Flight] = []
        self.late_owners: list[Owner] = []

    def _deliver(self, session: str, did: str, plan: list[tuple[int, str]], on_error: str, turn: str | None) -> None:
        if (session, did) not in self.retired:
            super()._deliver(session, did, plan, on_error, turn)
            self.session_of.setdefault(self.runs[-1], session)
            return
        made = delivery([proposed(n) for n, _ in plan], session=session, did=did)
        assert self._answer(admit_delivery(made, LIMITS, SHARDS)) == "delivery_retired"

    @precondition(lambda self: self.runs)
    @rule(session=st.sampled_from(SESSIONS), most=st.sampled_from([1, 50]))
    def erase(self, session: str, most: int) -> None:
        """A session is erased whatever goes on in it, and deleted in pieces (C-82)."""
        if self.ledger.session(session) is None:
            return
        turns = self._turns(session)
        asked = self._asked(session)
        for _ in range(2):
            assert self.ledger.run(erase_session(TENANT, session, TOMBSTONE_MS, SHARDS))
        assert self.ledger.session(session) is None
        self.gone_approvals += asked
        self._forget(session, turns, {known for known in self.latest if known[0] == session})
        self._delete_rest(most)

    @precondition(lambda self: self.runs)
    @rule(session=st.sampled_from(SESSIONS), plan=PLANS, met=st.booleans())
    def expire(self, session: str, plan: list[tuple[int, str]], met: bool) -> None:
        """Nothing happened in a session for a month; a live run keeps it (C-81). `met`: a delivery comes first."""
        found = self.ledger.session(session)
        if found is None:
            return
        turns = self._turns(session)
        with_intent = {
            known
            for known, run in self.latest.items()
            if known[0] == session and self.ledger.read(run).logical_turn_id is not None
        }
        asked = self._asked(session)
        self.ledger.rewrite(f"session:{sid_of(session)}", "meta", {"lm": 1, "ia": 1})
        self.ledger.raw.zadd(key("expiry"), {sid_of(session): 2})
        if found.live_runs:
            assert self.ledger.session(session) is not None
            self.ledger.rewrite(
                f"session:{sid_of(session)}", "meta", {"lm": self.ledger.now(), "ia": EVERYTHING * 1000}
            )
            return
        assert self.ledger.session(session) is None
        self.gone_approvals += asked
        self._forget(session, turns, with_intent)
        if met:
            self._deliver(session, "after", plan, "continue", None)
        self._delete_rest(50)

    @precondition(lambda self: self.late_flights)
    @rule(which=PICK, status=STATUSES, by=st.sampled_from(["report", "put back", "begin"]))
    def write_back(self, which: int, status: MutationStatus, by: str) -> None:
        """A worker that still runs writes nothing of an ended session back (C-82)."""
        flight = pick(self.late_flights, which)
        sid, token = flight.work.sid, flight.token
        call: Any = {
            "report": report(flight, status, 10_000),
            "put back": void_attempt(SHARD, sid, token, 10_000, flight.work.attempt),
            "begin": begin_next(SHARD, sid, token, 10_000, POLICY),
        }[by]
        answer = self._answer(call)
        if isinstance(answer, Settled):
            # An unprotected call is on no record that could be looked for; to a new session of the name it is over.
            assert not flight.work.protected
            assert (answer.how, answer.record) == ("repeated", None)
            answer = answer.work
        assert answer in ("lease_lost", "attempt_mismatch") or _nothing(answer), answer

    @precondition(lambda self: self.gone_turns)
    @rule(which=PICK, session=st.sampled_from(SESSIONS), did=st.sampled_from(["g0", "g1"]))
    def continue_gone(self, which: int, session: str, did: str) -> None:
        """A turn that is gone is never continued, nor made anew (C-63)."""
        turn = pick(sorted(self.gone_turns), which)
        made = delivery([proposed(0)], session=session, did=did, logical_turn_id=turn)
        assert self._answer(admit_delivery(made, LIMITS, SHARDS)) == "logical_turn_unavailable"

    def _forget(self, session: str, turns: set[str], retired: set[tuple[str, str]]) -> None:
        sid = sid_of(session)
        self.retired |= retired
        self.gone_turns |= turns
        mine = [run for run in self.runs if self.session_of[run] == session]
        self.gone_runs += mine
        self.runs = [run for run in self.runs if run not in mine]
        for known in [known for known in self.latest if known[0] == session]:
            del self.latest[known]
            self.plans.pop(known, None)
        for name in [name for name in self.reference.mutations if name[0] in turns]:
            del self.reference.mutations[name]
        for turn in turns:
            self.reference.revisions.pop(turn, None)
        owner = self.owners.pop(sid, None)
        flight = self.flights.pop(sid, None)
        self.late_owners += [] if owner is None else [owner]
        adrift = [one for one in self.adrift if one.work.sid == sid]
        self.adrift = [one for one in self.adrift if one.work.sid != sid]
        self.late_flights += adrift + ([] if flight is None else [flight])

    def _asked(self, session: str) -> list[str]:
        mine = [run for run in self.runs if self.session_of[run] == session]
        return [call.approval_id for run in mine for call in self.ledger.read(run).calls if call.approval_id]

    def _delete_rest(self, most: int) -> None:
        more = True
        while more:
            self.ledger.raw.delete(key("swept:retention"))
            more = self.ledger.run(sweep_retention(SHARD, TOMBSTONE_MS, EVERYTHING, most=most)).more

    @invariant()
    def what_is_gone_stays_gone(self) -> None:
        """No run, approval, stream entry or field of it is there, and its runs are answered like unknown ones."""
        raw = self.ledger.raw
        runs = {name.split(b":")[3].decode() for name in raw.keys(key("run:*"))}
        assert runs == set(self.runs)
        assert raw.zcard(key("erase")) == 0
        assert not raw.keys(key("erased:*"))
        assert self.gone_turns.isdisjoint(row["logical_turn_id"] for row in self.ledger.outcomes())
        for run in self.gone_runs[-3:]:
            assert self.ledger.run(read_run(SHARD, run, TENANT)).run is None
        for approval_id in self.gone_approvals[-3:]:
            assert not self.ledger.run(read_approval(SHARD, TENANT, approval_id)).approvals


def _nothing(answer: Any) -> bool:
    return isinstance(answer, Nothing) and answer.why == "lost"
