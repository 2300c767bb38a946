"""The command line `mutation-ledger`: one module a command group, errors as one line, exit codes 0, 1, 2."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ledger.cli.group import cli
from ledger.errors import LedgerError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 it did not hold, 2 usage."""
    try:
        given = list(arguments) if arguments is not None else None
        result = cli.main(args=given, prog_name="mutation-ledger", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _fail(_usage(error), error.exit_code)
    except LedgerError as error:
        return _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted")
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int = 1) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return code


def _usage(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return error.format_message() + hint
