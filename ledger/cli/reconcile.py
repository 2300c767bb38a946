"""`reconcile`: a person at the machine says what happened to an unknown mutation (C-91)."""

from __future__ import annotations

import os
import pwd
import re

import click

from ledger.cli.options import Settings, common
from ledger.cli.output import note, print_json
from ledger.cli.reach import opened, tenant_option, the_tenant
from ledger.errors import Refused
from ledger.history import read_turn
from ledger.reconciliation import reconcile_mutation
from ledger.records import Session
from ledger.timefmt import rfc3339

_HEX = re.compile(r"[0-9a-f]{4,64}")


@click.command()
@click.argument("session")
@click.argument("turn")
@click.argument("mutation")
@click.option("--completed", is_flag=True, help="The effect happened; the call is never dispatched again in this turn.")
@click.option(
    "--not-executed", is_flag=True, help="It is proven that nothing happened; the call may be approved again."
)
@click.option("--dispatcher-stopped", is_flag=True, help="You made sure that the worker that began it is gone.")
@tenant_option
@common
def reconcile(
    settings: Settings,
    session: str,
    turn: str,
    mutation: str,
    completed: bool,
    not_executed: bool,
    dispatcher_stopped: bool,
    tenant: str | None,
) -> None:
    """Settle an unknown outcome for good, from what you looked up yourself. MUTATION may be the beginning of its id.

    Never take an error message, a timeout or missing metadata as proof that nothing happened.
    """
    if completed == not_executed:
        raise click.UsageError("give one of --completed and --not-executed", click.get_current_context())
    whose = the_tenant(settings, tenant)
    with opened(settings) as store:
        shards = store.settings.redis.shards
        found = store.run(read_turn(whose, session, turn, shards))
        call = reconcile_mutation(
            whose,
            session,
            turn,
            find_mutation(found, mutation),
            completed=completed,
            by=f"cli:{pwd.getpwuid(os.getuid()).pw_name}",
            shards=shards,
            dispatcher_stopped=dispatcher_stopped,
        )
        try:
            done = store.run(call)
        except Refused as error:
            raise explained(error) from None
    if not settings.json:
        said = {"reconciled": "reconciled", "repeated": "was reconciled so before"}[done.how]
        note(f"{said}: {done.record['tool']} is {done.record['status']}, revision {done.revision}")
    print_json({"record": done.record, "mutation_revision": done.revision, "how": done.how})


def find_mutation(session: Session | None, given: str) -> str:
    """The full id of the one mutation that begins with `given`.

    Raises Refused (not_found) if there is none, UsageError if `given` is no id or fits several.
    """
    if not _HEX.fullmatch(given):
        raise click.BadParameter("a mutation id is 64 hex digits; its first 4 or more will do", param_hint="MUTATION")
    entries = session.turns[0].entries if session is not None and session.turns else ()
    fitting = [entry.mutation_id for entry in entries if entry.mutation_id.startswith(given)]
    if not fitting:
        raise Refused("no such mutation in that session and turn; see `mutation-ledger unknowns`", code="not_found")
    if len(fitting) > 1:
        raise click.BadParameter(
            f"{len(fitting)} mutations of this turn begin so; give more digits", param_hint="MUTATION"
        )
    return fitting[0]


def explained(error: Refused) -> Refused:
    """The refusal with what to do about it."""
    text = str(error).strip()
    if error.code == "attempt_may_be_running" and text.isdigit():
        until = rfc3339(int(text))
        text = f"the attempt may be running until {until}: wait, or stop its worker and add --dispatcher-stopped"
    elif error.code == "attempt_may_be_running":
        text = "the attempt is still under way: wait until it is stored as unknown"
    elif error.code == "not_reconcilable":
        text = "only unknown outcomes are reconciled; see `mutation-ledger show` for what is stored"
    return Refused(text, code=error.code)
