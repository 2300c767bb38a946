"""Front doors and engines refuse what a running server would not take, once a worker has told them (C-64)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import Refused
from tests.support.fake_section import fake_section
from tests.support.hosting import hosting, message
from tests.support.stack import Reply, Stack, quick_section
from tests.support.tool_calls import FakeServer
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

TYPED = "mcp__fake__typed"


@pytest.mark.acceptance
@pytest.mark.proves("C-64")
def test_calls_that_cannot_work_are_refused_while_a_server_lists(tmp_path: Path, valkey: ValkeyProcess) -> None:
    fake = FakeServer(tmp_path)
    config = quick_section() + fake_section(fake) + f'[policy]\nmutation_tools = ["{TYPED}"]\n'
    with Stack(tmp_path / "stack", valkey.url, config) as stack:
        api = stack.add_front_door()

        def ask(session: str, tool: str, arguments: dict[str, Any]) -> Reply:
            return api.trigger(session, "d1", [(tool, arguments)])

        # Nobody knows yet what the server lists: the call is admitted, and the worker finds out.
        unchecked = ask("before", TYPED, {"title": 7}).body
        assert unchecked["status"] == "queued"
        worker = stack.add_worker()
        assert api.ended(unchecked["run_id"])["calls"][0]["status"] == "completed"

        tries = itertools.count()
        wait_until(lambda: ask(f"try-{next(tries)}", TYPED, {"title": 7}).status == 422, 20, "the catalog to be known")
        refused = ask("wrong", TYPED, {"title": 7, "note": "marker"})
        assert (refused.status, refused.body["code"]) == (422, "arguments_invalid")
        assert refused.body["detail"] == "calls.0.arguments.title: does not fit the tool's schema (type)"
        absent = ask("absent", "mcp__fake__absent", {})
        assert (absent.status, absent.body["code"]) == (422, "unknown_tool")
        assert api.ended(ask("right", TYPED, {"title": "t"}).body["run_id"])["status"] == "completed"
        # What was admitted before is answered as it was.
        assert ask("before", TYPED, {"title": 7}).body["calls"][0]["refusal"]["code"] == "mutation_completed"

        # While no worker speaks for the server, calls are admitted unchecked.
        stack.kill(worker)
        wait_until(lambda: ask(f"later-{next(tries)}", TYPED, {"title": 7}).status != 422, 30, "it to be forgotten")


@pytest.mark.acceptance
@pytest.mark.proves("C-64")
def test_an_engine_refuses_them_too(tmp_path: Path, valkey: ValkeyProcess) -> None:
    with hosting(tmp_path, valkey.url, fake_section(FakeServer(tmp_path))) as host:
        engine = host.engine()
        tries = itertools.count()

        def refused() -> Refused | None:
            try:
                engine.handle(message(f"try-{next(tries)}", (TYPED, {"title": 7})))
            except Refused as error:
                return error
            return None

        error = wait_until(refused, 20, "the catalog to be known")
        assert error is not None
        assert (error.code, str(error)) == (
            "arguments_invalid",
            "calls.0.arguments.title: does not fit the tool's schema (type)",
        )
        ended = engine.handle_with_results(message("right", (TYPED, {"title": "t"})))
        assert ended.status == "completed"
