"""`approvals`, `approve`, `deny`: the inbox in a terminal, through the API with a token (C-42)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from ledger.cli.options import Settings, common
from ledger.cli.tables import pretty, print_exact, printable
from ledger.client import Approval, Client
from ledger.errors import LedgerError, Refused

_FIXES = {
    "unauthorized": "give --token or set MUTATION_LEDGER_TOKEN",
    "not_an_approver": "use a token with the role approve",
    "requester_may_not_approve": "another person decides",
    "confirmation_mismatch": "add --confirm with the exact name of its tool",
    "not_found": "see `mutation-ledger approvals`",
    "approval_expired": "the delivery must be handed in again",
    "service_unavailable": "start `mutation-ledger up`, or give --url",
}


def api_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate an API command with --url and --token; it gets `url` and `token`, which may be None."""
    where = "The front door; else MUTATION_LEDGER_URL [http://127.0.0.1 at service.port, 8321]."
    function = click.option("--url", envvar="MUTATION_LEDGER_URL", help=where)(function)
    return click.option("--token", envvar="MUTATION_LEDGER_TOKEN", help="Better in MUTATION_LEDGER_TOKEN.")(function)


def client_of(settings: Settings, url: str | None, token: str | None) -> Client:
    """The API client. Raises ConfigError if there is no usable token."""
    return Client(url or f"http://127.0.0.1:{settings.config.service.port}", token or "")


@click.command()
@click.option("--session", help="Only of this session.")
@api_options
@common
def approvals(settings: Settings, session: str | None, url: str | None, token: str | None) -> None:
    """List what waits for a decision, the oldest first, with the exact arguments."""
    try:
        waiting = client_of(settings, url, token).approvals(session_id=session)
    except LedgerError as error:
        raise with_fix(error) from None
    if settings.json:
        print_exact({"approvals": waiting})
        return
    if not waiting:
        click.echo("nothing waits for a decision")
    for approval in waiting:
        click.echo("\n".join(lines_of(approval)))


@click.command()
@click.argument("approval")
@click.option("--confirm", help="The tool's exact name, for calls of level confirm.")
@click.option("--comment", help="Kept with the decision.")
@api_options
@common
def approve(
    settings: Settings, approval: str, confirm: str | None, comment: str | None, url: str | None, token: str | None
) -> None:
    """Approve a call: it is dispatched once, with exactly the arguments shown."""
    _decide(settings, client_of(settings, url, token), approval, "approve", confirm, comment)


@click.command()
@click.argument("approval")
@click.option("--comment", help="Kept with the decision.")
@api_options
@common
def deny(settings: Settings, approval: str, comment: str | None, url: str | None, token: str | None) -> None:
    """Deny a call: it is not dispatched."""
    _decide(settings, client_of(settings, url, token), approval, "deny", None, comment)


def _decide(
    settings: Settings,
    client: Client,
    approval_id: str,
    decision: Literal["approve", "deny"],
    confirm: str | None,
    comment: str | None,
) -> None:
    try:
        decided = client.decide(approval_id, decision, confirm=confirm, comment=comment)
    except LedgerError as error:
        raise with_fix(error) from None
    if settings.json:
        print_exact(decided)
    else:
        click.echo(printable(f"{decided['state']}: {decided['tool']} in session {decided['session_id']}"))


def lines_of(approval: Approval) -> list[str]:
    """One request for people: what, for whom, until when, with which arguments."""
    return [
        printable(f"{approval['id']}  {approval['tool']}  level {approval['level']}"),
        printable(
            f"  session {approval['session_id']}  user {approval['user']}  asked by {approval['requested_by']}"
            f"  expires {approval['expires_at']}"
        ),
        *("  " + line for line in pretty(approval["arguments"])),
    ]


def with_fix(error: LedgerError) -> LedgerError:
    """The same error with what to do about it."""
    fix = _FIXES.get(error.code)
    if fix is None and isinstance(error, Refused) and error.extra.get("status") == 401:
        fix = _FIXES["unauthorized"]
    return error if fix is None else type(error)(f"{error}; {fix}", code=error.code)
