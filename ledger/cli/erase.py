"""`erase`: deletes a session for good, through the API with a token (C-82)."""

from __future__ import annotations

import click

from ledger.cli.approvals import api_options, client_of, with_fix
from ledger.cli.options import Settings, common
from ledger.cli.output import print_json
from ledger.cli.tables import printable
from ledger.errors import LedgerError, Refused


@click.command()
@click.argument("session")
@click.option("--wait", type=click.FloatRange(0, 60), help="Seconds to wait until everything is deleted.")
@api_options
@common
def erase(settings: Settings, session: str, wait: float | None, url: str | None, token: str | None) -> int:
    """Erase a session: its calls, arguments, approvals, journals and outcomes. What it began is never run again."""
    try:
        gone = client_of(settings, url, token).erase(session, wait=wait)
    except LedgerError as error:
        raise _with_fix(error, session) from None
    if settings.json:
        print_json({"session_id": session, "status": "erased" if gone else "erasing"})
    else:
        state = "erased" if gone else "invisible now; the rest is being deleted"
        click.echo(printable(f"session {session}: {state}"))
    return 1 if wait is not None and not gone else 0


def _with_fix(error: LedgerError, session: str) -> LedgerError:
    if isinstance(error, Refused) and error.code == "not_found":
        return Refused(f"no session {session}; see `mutation-ledger sessions`", code="not_found")
    if error.code == "forbidden":
        return Refused(f"{error}; use a token with the role erase", code="forbidden")
    return with_fix(error)
