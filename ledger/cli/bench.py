"""The `bench` command: the project's benchmark, which lives with the tests."""

from __future__ import annotations

import importlib
from typing import Any

import click

from ledger.errors import ConfigError


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> int:
    """Measure this product against its floor and against other systems.

    Raises:
        ConfigError: this is not a checkout of the project.
    """
    try:
        module: Any = importlib.import_module("tests.bench.__main__")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "tests":
            raise
        raise ConfigError(
            "the benchmark needs a checkout of the project: run it from there, with `make bench`"
        ) from None
    return int(module.main(list(arguments)))
