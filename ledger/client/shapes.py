"""The API's JSON as it comes, typed; times are RFC 3339 UTC strings."""

from __future__ import annotations

from typing import Any, NamedTuple, NotRequired, TypedDict


class Record(TypedDict):
    """`mutation_outcome/v1`."""

    schema: str
    logical_turn_id: str
    mutation_id: str
    tool: str
    status: str
    reason: NotRequired[str]
    resource_id: str | None
    url: str | None
    title: str | None


class Change(NamedTuple):
    """What a turn's snapshot tells of one mutation: the revision of its latest change, and its record."""

    revision: int
    record: Record


class Mutation(TypedDict):
    """One mutation in a turn's snapshot. `metadata` holds only what a host attached."""

    id: str
    tool: str
    status: str
    metadata: NotRequired[dict[str, str]]


class State(TypedDict):
    """The detached snapshot of a logical turn (C-92)."""

    id: str
    user_id: str
    delivery: str
    deliveries: list[str]
    finished: bool
    mutations: dict[str, Mutation]


class Ready(TypedDict):
    """The front door is ready; `durability` is `verified`, `attested` or `unsafe`."""

    status: str
    durability: str


class Call(TypedDict):
    """One call of a run."""

    index: int
    tool: str
    mutation_id: str
    status: str
    approval_id: str | None
    protected: bool
    outcome: Record | None
    refusal: dict[str, Any] | None
    result: Any


class Run(TypedDict):
    """A run. `run_status` is there when `status` is `still_running`; `code` when a run failed for a reason.

    `handler` and `narration` are there for a handler run; the latter is null until it has ended.
    """

    run_id: str
    session_id: str
    delivery: str
    logical_turn_id: str | None
    status: str
    run_status: NotRequired[str]
    code: NotRequired[str]
    journal_cursor: int
    calls: list[Call]
    handler: NotRequired[str]
    narration: NotRequired[Any]


class Event(TypedDict):
    """One journal event; the last line of a stream is of type `done` and carries the run's fields instead."""

    type: str
    n: NotRequired[int]
    at: NotRequired[str]
    run_id: NotRequired[str]
    index: NotRequired[int]
    mutation_id: NotRequired[str]
    approval_id: NotRequired[str]
    outcome: NotRequired[Record]
    mutation_revision: NotRequired[int]
    decision: NotRequired[str]
    rule: NotRequired[str]
    status: NotRequired[str]
    code: NotRequired[str]


class Approval(TypedDict):
    """An approval request and its decision."""

    id: str
    state: str
    session_id: str
    run_id: str
    user: str
    requested_by: str
    tool: str
    arguments: dict[str, Any] | None
    mutation_id: str
    level: str
    requested_at: str
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    rule: str | None
