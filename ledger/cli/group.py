"""The `mutation-ledger` group. Commands are imported when they are used."""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points, version

import click

from ledger.cli.options import Settings, common
from ledger.errors import ConfigError

# One line a command: its name and where the click command is.
COMMANDS = {
    "up": "ledger.cli.up:up",
    "demo": "ledger.cli.demo:demo",
    "doctor": "ledger.cli.doctor:doctor",
    "token": "ledger.cli.token:token",
    "sessions": "ledger.cli.sessions:sessions",
    "show": "ledger.cli.sessions:show",
    "unknowns": "ledger.cli.sessions:unknowns",
    "reconcile": "ledger.cli.reconcile:reconcile",
    "store": "ledger.cli.store:store",
    "approvals": "ledger.cli.approvals:approvals",
    "approve": "ledger.cli.approvals:approve",
    "deny": "ledger.cli.approvals:deny",
    "erase": "ledger.cli.erase:erase",
    "tail": "ledger.cli.tail:tail",
    "bench": "ledger.cli.bench:bench",
}
ENTRY_POINTS = "mutation_ledger.commands"


class LazyGroup(click.Group):
    """Finds commands in COMMANDS and in the entry points of the packages built on this one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*COMMANDS, *(point.name for point in entry_points(group=ENTRY_POINTS))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None if nobody has it; one that cannot be imported says so when it is run."""
        if cmd_name in COMMANDS:
            module, attribute = COMMANDS[cmd_name].split(":")
            command = getattr(importlib.import_module(module), attribute)
        else:
            points: list[EntryPoint] = list(entry_points(group=ENTRY_POINTS, name=cmd_name))
            if not points:
                return None
            try:
                command = points[0].load()
            except (ImportError, AttributeError) as error:
                return _missing(cmd_name, error)
        if not isinstance(command, click.Command):
            raise ConfigError(f"{cmd_name} is not a click command")
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("mutation-ledger"), prog_name="mutation-ledger")
@common
def cli(settings: Settings) -> None:
    """At-most-once writes for AI agents: approvals, durable intents, outcomes."""
    click.get_current_context().obj = settings


def _missing(name: str, error: Exception) -> click.Command:
    """A stand-in, so that `--help` still lists the others."""
    reason = str(error)

    def refuse() -> None:
        raise ConfigError(f"the command {name} cannot be loaded: {reason}")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, help="(cannot be loaded)", context_settings=anything)
