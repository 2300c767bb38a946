"""What the OpenAPI document says of a route, from the same models that check requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask_openapi.models.request_body import RequestBody
from flask_openapi.models.response import Response
from flask_openapi.utils import parse_body, parse_query
from pydantic import BaseModel, Field

from ledger.config import Role
from service.errors import PROBLEM_JSON
from service.incoming import JSON, SSE
from service.problems import PROBLEMS, URN

# Any route may answer these.
_ALWAYS = ("internal_error",)
_WITH_TOKEN = ("unauthorized", "forbidden", "invalid_request", "rate_limited")
_WITH_STORE = ("store_unavailable", "store_unconfirmed", "store_unsafe", "store_went_back", "format_too_new")
_WITH_BODY = ("body_too_large", "unsupported_media_type")


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = Field(description=f"`{URN}` and the code")
    title: str
    status: int
    code: str = Field(json_schema_extra={"enum": [*sorted(PROBLEMS)]})
    detail: str
    request_id: str | None = None
    admitted: str | None = Field(None, description="`unknown` after a write that was sent and not confirmed")
    decided: str | None = Field(None, description="`unknown` after a decision that was sent and not confirmed")
    durability: str | None = Field(None, description="`unsafe` when the store's settings cannot keep the promise")
    differences: list[str] | None = Field(None, description="what differs from the policy that others follow")
    erased: str | None = Field(None, description="`unknown` after an erasure that was sent and not confirmed")
    delivery_id: str | None = Field(None, description="what to retry with")


def operation(
    *,
    replies: dict[int, type[BaseModel] | dict[str, Any]],
    role: Role | None = None,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    path: Sequence[str] = (),
    problems: Sequence[str] = (),
    store: bool = True,
) -> dict[str, Any]:
    """Keyword arguments for a route decorator of `APIBlueprint`.

    `replies` maps a status to a model or to media types with schemas; `problems` are codes beside those that every
    such route has.
    """
    codes = [*problems, *_ALWAYS]
    codes += _WITH_TOKEN if role is not None else ()
    codes += _WITH_STORE if store else ()
    codes += _WITH_BODY if body is not None else ()
    described: dict[str, Any] = {
        "responses": {**{str(status): _reply(reply) for status, reply in replies.items()}, **_problems(codes)},
        "openapi_extensions": {"parameters": [*(_path_parameter(name) for name in path), *_query(query)]},
    }
    if role is not None:
        described["security"] = [{"bearer": []}]
        described["description"] = f"Role: `{role}`."
    if body is not None:
        described["request_body"] = RequestBody(content=parse_body(body)[0], required=True)
    return described


# What readers of such a stream are handed, one event after the other.
_EVENT = {
    "type": "object",
    "description": "One server-sent event; `data` is JSON. Comments keep a quiet stream alive.",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}


def media(*types: str) -> dict[str, Any]:
    """A reply in these media types, whose content is described in words only."""
    return {"content": {kind: {"schema": _EVENT if kind == SSE else {"type": "string"}} for kind in types}}


def either(model: type[BaseModel], *streams: str) -> dict[str, Any]:
    """A reply that is `model` as JSON, or one of the streams."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"content": {JSON: {"schema": schema}} | media(*streams)["content"]}


def _reply(reply: type[BaseModel] | dict[str, Any]) -> Any:
    return reply if isinstance(reply, type) else Response.model_validate({"description": "OK", **reply})


def _problems(codes: Sequence[str]) -> dict[str, Response]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): Response.model_validate({"description": ", ".join(named), "content": content})
        for status, named in sorted(by_status.items())
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query(model: type[BaseModel] | None) -> list[Any]:
    return [] if model is None else list(parse_query(model)[0])


def component_schemas(*models: type[BaseModel]) -> dict[str, Any]:
    """The schemas of models that routes refer to by name."""
    found: dict[str, Any] = {}
    for model in models:
        found.update(parse_body(model)[1])
    return found
