"""Shapes of requests: strict types, no coercion, unknown fields refused (C-64). They also describe the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SessionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:@/-]{1,128}$", description="A conversation or job")]
AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:@/-]{1,128}$")]
# A user is named by the host; control characters would make two names look like one.
UserName = Annotated[str, Field(pattern=r"^[^\u0000-\u001f\u007f-\u009f]{1,128}$")]
OpaqueId = Annotated[str, Field(min_length=1, max_length=128)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/@-]{1,200}$")]
MutationId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Body(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class ProposedTool(Body):
    """One proposed tool use."""

    tool: ToolName
    arguments: dict[str, Any] = Field(description="A JSON object, kept exactly; at most 64 levels")


class TriggerRequest(Body):
    """A delivery: `calls` make a plan, `handler` a handler run; exactly one of them."""

    session_id: SessionId
    agent: AgentName | None = None
    user: UserName | None = None
    delivery_id: OpaqueId | None = None
    logical_turn_id: OpaqueId | None = None
    calls: Annotated[list[ProposedTool], Field(min_length=1, max_length=32)] | None = None
    on_error: Literal["stop", "continue"] = "stop"
    handler: ToolName | None = None
    text: str | None = None
    input: Any = None
    deadline_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.calls is None) == (self.handler is None):
            raise ValueError("give exactly one of calls and handler")
        if self.handler is None and not (self.text is None and self.input is None):
            raise ValueError("text and input belong to handler")
        return self


class DecisionRequest(Body):
    """A person's decision. `confirm` is the tool's name, typed, for level `confirm`."""

    decision: Literal["approve", "deny"]
    confirm: Annotated[str, Field(max_length=200)] | None = None
    comment: Annotated[str, Field(max_length=2000)] | None = None


class MetadataRequest(Body):
    """Host metadata for one mutation, found by delivery or by logical turn."""

    session_id: SessionId
    agent: AgentName | None = None
    user: UserName | None = None
    delivery_id: OpaqueId | None = None
    logical_turn_id: OpaqueId | None = None
    mutation_id: MutationId
    metadata: dict[str, str]

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.delivery_id is None) == (self.logical_turn_id is None):
            raise ValueError("give exactly one of delivery_id and logical_turn_id")
        return self


def _digits(value: object) -> object:
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit() and len(value) <= 15):
            raise ValueError("must be a whole number, 0 or more")
        return int(value)
    return value


Cursor = Annotated[int, BeforeValidator(_digits), Field(ge=0)]


class Query(BaseModel):
    """Base of query strings: text is converted, unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TriggerQuery(Query):
    """`wait`: seconds to wait for the end of the run."""

    wait: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] | None = None


class EraseQuery(Query):
    """`wait`: seconds to wait until everything is deleted."""

    wait: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] | None = None


class EventsQuery(Query):
    """`after`: the number of the last event seen. `follow=1` goes on until the run ends."""

    after: Cursor | None = None
    follow: Literal["0", "1"] = "0"


class ApprovalsQuery(Query):
    """The inbox: pending requests, oldest first. `after` is what the page before said in `next`."""

    state: Literal["pending"] = "pending"
    session_id: SessionId | None = None
    limit: Annotated[int, BeforeValidator(_digits), Field(ge=1, le=200)] = 100
    after: Annotated[str, Field(pattern=r"^[0-9]{1,15}\.[0-9]{1,12}:[0-9a-f]{34}$")] | None = None


class SessionQuery(Query):
    """Which session."""

    session_id: SessionId


class MutationEventsQuery(SessionQuery):
    """Which turn, and the last revision seen."""

    logical_turn_id: OpaqueId
    after: Cursor | None = None


class StateQuery(SessionQuery):
    """Which delivery of which agent and user."""

    delivery_id: OpaqueId
    agent: AgentName | None = None
    user: UserName | None = None


class NoQuery(Query):
    """No parameters."""
