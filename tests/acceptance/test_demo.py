"""The demo is the product's first promise to a newcomer, so it is a test."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

STEPS = [
    "admitted",
    "approved",
    "completed",
    "delivered again",
    "denied",
    "killed",
    "recovered",
    "not repeated",
    "goes on",
    "streamed",
    "reconciled",
    "read on",
]


@pytest.mark.acceptance
@pytest.mark.proves("C-13", "C-33", "C-42", "C-60", "C-91", "C-111")
def test_every_step_of_the_demo_holds() -> None:
    command = [sys.executable, "-m", "ledger.cli", "demo", "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["step"] for line in done.stdout.splitlines()] == STEPS
