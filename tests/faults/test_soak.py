"""A small soak: every kind of process is killed once while sixty sessions are worked on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.soak.soak import Options, soak

SMALL = Options(sessions=60, mutations=1800, at_once=4, workers=2, pause=(0.3, 0.6), hours=0.02, flat=False)


@pytest.mark.acceptance
@pytest.mark.timeout(240)
@pytest.mark.proves("C-24", "C-25", "C-33", "C-111")
def test_a_small_soak(tmp_path: Path) -> None:
    report = soak(tmp_path / "world", SMALL)
    assert report.violations == []
    assert report.mutations == SMALL.mutations
    assert {kind for kind, times in report.recovered.items() if times} == {"worker", "front door", "store"}
