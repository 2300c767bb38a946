"""Who calls, what the token may do, and for which agent and user (contract section 15, C-42)."""

from __future__ import annotations

from flask import g, request

from ledger.config import Role
from ledger.errors import InvalidRequest, Refused
from ledger.tokens import Principal
from service.door import current_door


def authorize(role: Role) -> Principal:
    """The principal behind the request's bearer token.

    Raises:
        Refused: unauthorized; forbidden, or not_an_approver, when the token lacks `role`.
        RateLimited: see `service.rates`.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    principal = current_door().tokens.authenticate(token.strip()) if scheme.lower() == "bearer" else None
    if principal is None:
        raise Refused("send a known token as Authorization: Bearer", code="unauthorized")
    g.principal = principal.name
    current_door().rates.check(principal)
    if not principal.may(role):
        code = "not_an_approver" if role is Role.APPROVE else "forbidden"
        raise Refused(f"this needs the role {role}", code=code)
    return principal


def acting(principal: Principal, agent: str | None, user: str | None) -> tuple[str, str]:
    """The agent and user of a request, after the token's rules.

    Raises:
        InvalidRequest: agent_required.
        Refused: agent_not_allowed, user_not_allowed.
    """
    return _agent(principal, agent), _user(principal, user)


def _agent(principal: Principal, agent: str | None) -> str:
    allowed = principal.agents
    if agent is None:
        if allowed is None:
            return principal.name
        if len(allowed) == 1:
            return allowed[0]
        raise InvalidRequest("the token allows several agents: name one", code="agent_required")
    if allowed is not None and agent not in allowed:
        raise Refused("the token does not allow this agent", code="agent_not_allowed")
    return agent


def _user(principal: Principal, user: str | None) -> str:
    if user is None or user == principal.name:
        return principal.name
    if not principal.act_for_users:
        raise Refused("the token may not act for users", code="user_not_allowed")
    return user
