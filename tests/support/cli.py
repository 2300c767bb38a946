"""Running the command line in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ledger.cli import main
from ledger.long_integers import read_json


@dataclass(frozen=True)
class Ran:
    """What one invocation did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return read_json(self.out)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    """`mutation-ledger ARGUMENTS`; errors are checked to be one line."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Ran(code, captured.out, captured.err)
