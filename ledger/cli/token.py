"""`token new`, `token check`."""

from __future__ import annotations

import click

from ledger.cli.options import Settings, common
from ledger.cli.output import print_json
from ledger.config import Role
from ledger.errors import LedgerError
from ledger.tokens import TokenBook, new_token, token_hash


@click.group()
def token() -> None:
    """Make tokens, and find out whose a token is."""


@token.command()
@common
def new(settings: Settings) -> None:
    """Print a fresh token and the digest that [[tokens]] takes. Nothing is stored."""
    made = new_token()
    digest = token_hash(made)
    if settings.json:
        print_json({"token": made, "sha256": digest})
        return
    click.echo(f"token   {made}\nsha256  {digest}")


@token.command()
@click.option("--token", "given", envvar="MUTATION_LEDGER_TOKEN", help="Else MUTATION_LEDGER_TOKEN, else asked for.")
@common
def check(settings: Settings, given: str | None) -> None:
    """Show whose a token is under this configuration; exit 1 if nobody's."""
    book = TokenBook.load(settings.config, settings.data_dir)
    principal = book.authenticate(given or click.prompt("token", hide_input=True, err=True))
    if principal is None:
        raise LedgerError(f"the token matches none of the {len(book)} known")
    roles = [role for role in Role if principal.may(role)]
    if settings.json:
        print_json(
            {
                "name": principal.name,
                "tenant": principal.tenant,
                "roles": roles,
                "agents": principal.agents,
                "act_for_users": principal.act_for_users,
            }
        )
        return
    click.echo(f"name    {principal.name}\ntenant  {principal.tenant}\nroles   {', '.join(roles)}")
    click.echo(f"agents  {', '.join(principal.agents) if principal.agents is not None else 'any'}")
    click.echo(f"users   {'any' if principal.act_for_users else 'itself only'}")
