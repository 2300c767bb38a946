"""A reader follows the published outcomes, stops, and goes on where it was: nothing missing, nothing out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.consumer import FileCursorStore, Outcome, OutcomeConsumer
from tests.support.stack import Api, Stack

CREATE = "mcp__dashboards__create"


@pytest.mark.acceptance
@pytest.mark.proves("C-111")
def test_a_reader_goes_on_where_it_stopped(service: Stack, tmp_path: Path) -> None:
    agent = Api(service.ports[0])
    cursors = FileCursorStore(tmp_path / "cursors.json")

    _create(agent, "msg-1")
    before = _read(service, cursors)
    assert [outcome.record["status"] for outcome in before] == ["completed"]

    # While the reader is away, two more dashboards are made.
    _create(agent, "msg-2")
    _create(agent, "msg-3")
    after = _read(service, cursors)
    assert len(after) == 2
    assert len({outcome.mutation_id for outcome in (*before, *after)}) == 3
    assert _read(service, cursors) == []


def _create(agent: Api, delivery: str) -> None:
    run = agent.trigger("incident-4", delivery, [(CREATE, {"title": f"Board of {delivery}"})]).body
    agent.approve(run["calls"][0]["approval_id"])
    assert agent.ended(run["run_id"])["status"] == "completed"


def _read(service: Stack, cursors: FileCursorStore) -> list[Outcome]:
    """Everything that is new, of this story's session."""
    with OutcomeConsumer(service.store_url, cursors, tenant="acme") as consumer:
        found = list(consumer.outcomes(once=True))
    return [outcome for outcome in found if outcome.session_id == "incident-4"]
