"""`store accept`: a person takes responsibility for a store that lost confirmed writes (C-27)."""

from __future__ import annotations

from dataclasses import asdict

import click

from ledger.acceptance import StoreState, accept_store, read_state
from ledger.cli.options import Settings, common
from ledger.cli.output import note, print_json
from ledger.cli.reach import advised, store_settings
from ledger.errors import LedgerError


@click.group()
def store() -> None:
    """Look after the store itself."""


@store.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def accept(settings: Settings, yes: bool) -> None:
    """Accept the store as it is now, after it went back. Approvals are void, live runs end, started calls are unknown.

    Find out first what was lost, and reconcile what you find: nothing that was lost is known to the ledger.
    """
    reached = store_settings(settings)
    with advised(settings):
        state = read_state(reached)
        for line in announce(state):
            note(line)
        if not yes and not click.confirm("accept this store?", err=True):
            raise LedgerError("not accepted; nothing was changed")
        done = accept_store(reached)
    if settings.json:
        print_json(asdict(done))
    else:
        click.echo(f"accepted: store {done.store_id}, {done.shards} shards, {done.runs_ended} live runs ended")


def announce(state: StoreState) -> list[str]:
    """What accepting will do, in lines for a person."""
    if state.refused:
        first = f"{len(state.refused)} of {state.shards} shards are refused: the store lost confirmed writes"
    elif state.made:
        first = "this store is NOT refused: accept it only if it was put back while every process was down"
    else:
        first = "this store is empty"
    return [
        first,
        "accepting gives the store a new id, voids every approval given so far, ends every live run,",
        "and publishes every started call as unknown; consumers of outcomes resynchronise from history",
    ]
