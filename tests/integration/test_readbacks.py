"""Registered readbacks over real workers: only an explicit answer reconciles, and nothing else changes (C-91)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ledger.config import Config, RedisConfig
from ledger.engine import IncomingMessage, ReadbackAnswer, ReadbackRequest
from ledger.history import read_session
from ledger.plugins import PluginRegistry
from ledger.readbacks.answers import NOTE_MAX, one_line
from ledger.readbacks.asking import MARGIN_SECONDS, ReadbackSettings
from ledger.records import Entry
from ledger.store import StoreSettings, SyncStore
from ledger.storetime import store_time
from tests.support.hosting import Hosting, message
from tests.support.plugins.readbacks import ASYNC, HOSTED, TOOL, UNASKED
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

TRIES = 4
READBACKS = f"""
[readbacks]
timeout_seconds = 1.0
max_tries = {TRIES}
first_pause_seconds = 0.2
longest_pause_seconds = 0.5
"""
TIMING = {"lease_seconds": 1.0, "cancel_drain_seconds": 0.3, "tool_timeout_seconds": 1.0}
NOT_AFTER_SECONDS = 2.3


class Scene:
    """Two workers with the plugin."""

    def __init__(self, directory: Path) -> None:
        self.server = ValkeyProcess(directory / "valkey").start()
        self.url = url = self.server.url
        modules = ("tests.support.plugins.readbacks", "tests.support.effect_tools")
        self.host = Hosting(directory / "stack", url, READBACKS, modules=modules, timing=TIMING)
        self.questions_file = directory / "readbacks.jsonl"
        self.host.stack.env["READBACKS_FILE"] = str(self.questions_file)
        self.workers = [self.host.stack.add_worker() for _ in range(2)]
        self.engine = self.host.engine()
        self.store = SyncStore(StoreSettings(RedisConfig(url=url)))

    def broken(self, name: str, tool: str = TOOL, **more: Any) -> IncomingMessage:
        """A delivery whose call broke off after its effect."""
        arguments = {"id": name, "readback": "completed", **more}
        told = message(name, (tool, arguments), delivery_id="d1")
        result = self.engine.handle_with_results(told)
        assert [call["status"] for call in result.calls] == ["outcome_unknown"]
        return told

    def entry(self, session: str) -> Entry:
        """The ledger's entry of the session's one mutation."""
        found = self.store.run(read_session("acme", session, 16))
        assert found is not None
        (entry,) = found.turns[0].entries
        return entry

    def becomes(self, session: str, status: str, timeout: float = 15.0) -> Entry:
        """The entry once it has that status."""
        wait_until(lambda: self.entry(session).status == status, timeout, f"{session} to become {status}")
        return self.entry(session)

    def questions(self, name: str, word: str = "asked") -> list[dict[str, Any]]:
        """What the plugin's readback was asked, or answered, about one call."""
        if not self.questions_file.exists():
            return []
        lines = [json.loads(line) for line in self.questions_file.read_text().splitlines()]
        return [line for line in lines if line["id"] == name and line["word"] == word]

    def effects(self, *names: str) -> int:
        """How many effects these calls had."""
        return len([effect for effect in self.host.effects() if effect in names])

    def printed(self, *command: str) -> str:
        """What the command line prints."""
        stack = self.host.stack
        arguments = [*command, "--tenant", "acme", "--config", str(stack.config), "--redis-url", self.url]
        done = subprocess.run(
            [sys.executable, "-m", "ledger.cli", *arguments], env=stack.env, capture_output=True, check=True
        )
        return done.stdout.decode()

    def close(self) -> None:
        """Ends everything."""
        self.store.close()
        self.host.close()
        self.server.stop()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One for all tests, so each names sessions of its own."""
    made = Scene(tmp_path_factory.mktemp("readbacks"))
    yield made
    made.close()


@pytest.mark.proves("C-91", "C-90")
def test_it_is_asked_once_after_not_after_and_its_answer_reconciles(scene: Scene) -> None:
    told = scene.broken("booked")
    assert scene.entry("booked").readbacks == ()
    entry = scene.becomes("booked", "completed")
    (asked,) = scene.questions("booked")
    assert asked["at"] * 1000 > entry.not_after
    assert scene.entry("booked").not_after < scene.store.run(store_time())
    (evidence,) = entry.readbacks
    assert entry.reconciled_by == evidence.by
    assert evidence.by.startswith("readback:tests.support.plugins.readbacks.look_up@")
    # Who answered can be found: the process is named, and what it said is one printable line.
    assert evidence.by.endswith(f"/{asked['pid']}")
    assert (evidence.answer, evidence.note) == ("completed", "1 in the books with [31m colour")
    (record,) = scene.engine.sessions.mutation_outcomes("booked")
    assert (record["status"], record["resource_id"], record["title"]) == ("completed", "B-booked", "Booking")
    again = scene.engine.handle_with_results(told)
    assert again.calls[0]["refusal"]["code"] == "mutation_completed"
    shown = scene.printed("show", "booked")
    assert f"by {evidence.by}: 1 in the books" in shown


@pytest.mark.proves("C-91", "C-13")
def test_not_executed_lets_the_call_be_made_anew(scene: Scene) -> None:
    told = scene.broken("absent", readback="nothing")
    entry = scene.becomes("absent", "approved")
    assert [(row.answer, row.note) for row in entry.readbacks] == [("not_executed", "no such booking")]
    again = scene.engine.handle_with_results(told)
    assert again.calls[0]["status"] == "outcome_unknown"
    assert scene.effects("absent") == 2


@pytest.mark.proves("C-91")
def test_whatever_is_no_explicit_answer_leaves_it_unknown_and_is_asked_again_a_few_times(scene: Scene) -> None:
    odd = {
        "raise": "the readback raised LookupError",
        "nonsense": "the readback answered bool, not a ReadbackAnswer",
        "bad_metadata": "the readback's metadata do not fit: invalid_request",
        "unknown": "the books are closed",
    }
    for kind in odd:
        scene.broken(kind, readback=kind, secret="hunter2hunter2")
    wait_until(lambda: all(len(scene.entry(kind).readbacks) == TRIES for kind in odd), 25, f"{TRIES} answers of each")
    for kind, note in odd.items():
        entry = scene.entry(kind)
        assert (entry.status, entry.readback_tries, entry.revision) == ("outcome_unknown", TRIES, 2)
        assert {(row.answer, row.note) for row in entry.readbacks} == {("unknown", note)}
        # Later and later.
        times = [question["at"] for question in scene.questions(kind)]
        assert len(times) == TRIES
        assert all(later - sooner > 0.2 for sooner, later in pairwise(times))
    waits = scene.store.command([["ZCARD", f"ml:{{{shard:02x}}}:readback:{TOOL}"] for shard in range(16)])
    assert sum(waits) == 0
    assert "unknown: the books are closed" in scene.printed("unknowns")
    assert "hunter2" not in scene.host.stack.logs()
    assert scene.effects(*odd) == len(odd)


@pytest.mark.proves("C-91")
def test_one_that_hangs_is_given_up_and_holds_up_no_other(scene: Scene) -> None:
    scene.broken("hangs", readback="hang")
    scene.broken("other")
    scene.becomes("other", "completed")
    entry = scene.becomes("hangs", "completed", 25)
    assert [row.answer for row in entry.readbacks] == ["unknown", "completed"]
    assert entry.readbacks[0].note == "no answer within 1 s"


@pytest.mark.proves("C-91")
def test_killed_in_the_middle_somebody_else_asks_again(scene: Scene) -> None:
    scene.broken("killed", readback="kill")
    entry = scene.becomes("killed", "completed", 40)
    first, second = scene.questions("killed")
    assert second["at"] - first["at"] >= MARGIN_SECONDS
    assert (first["pid"] != second["pid"], entry.readback_tries) == (True, 2)
    assert [row.answer for row in entry.readbacks] == ["completed"]
    assert scene.effects("killed") == 1


@pytest.mark.proves("C-91")
def test_one_question_at_a_time_whoever_asks(scene: Scene) -> None:
    scene.host.stack.add_worker()
    names = [f"slow-{n}" for n in range(6)]
    for name in names:
        scene.broken(name, readback="slow")
    for name in names:
        scene.becomes(name, "completed")
        assert (len(scene.questions(name)), len(scene.questions(name, "answered"))) == (1, 1)


@pytest.mark.proves("C-91")
def test_without_a_registered_readback_nobody_asks(scene: Scene) -> None:
    scene.broken("unasked", UNASKED)
    scene.broken("asked", ASYNC)
    scene.becomes("asked", "completed")
    over = time.monotonic() + NOT_AFTER_SECONDS
    wait_until(lambda: time.monotonic() > over, 10, "as long again")
    entry = scene.entry("unasked")
    assert (entry.status, entry.readback_tries, scene.questions("unasked")) == ("outcome_unknown", 0, [])


@pytest.mark.proves("C-91")
def test_a_host_engine_asks_for_its_own_tenant(scene: Scene) -> None:
    seen: list[ReadbackRequest] = []

    def look_up(request: ReadbackRequest) -> ReadbackAnswer:
        seen.append(request)
        return ReadbackAnswer.completed(note="told by the host")

    mine = scene.broken("mine", HOSTED, readback="x")
    other = scene.host.engine(tenant="globex", principal="other")
    foreign = message("foreign", (HOSTED, {"id": "foreign", "readback": "x"}))
    other.handle_with_results(foreign)
    scene.engine.readback(HOSTED, look_up)
    scene.engine.readback(HOSTED, look_up)
    with pytest.raises(ValueError, match="another readback"):
        scene.engine.readback(HOSTED, lambda request: None)
    entry = scene.becomes("mine", "completed")
    assert [(request.tenant, request.session_id, request.arguments) for request in seen] == [
        ("acme", "mine", {"id": "mine", "readback": "x"})
    ]
    assert entry.readbacks[0].by.startswith("readback:host:tests.integration.test_readbacks.")
    assert scene.engine.mutation_state(mine) is not None
    (record,) = other.sessions.mutation_outcomes("foreign")
    assert record["status"] == "outcome_unknown"
    # What was registered stays registered when the engine connects anew.
    scene.engine.close()
    scene.engine.start()
    scene.broken("later", HOSTED, readback="x")
    scene.becomes("later", "completed")


def test_pauses_double_up_to_the_longest() -> None:
    settings = ReadbackSettings(30, 8, 10, 60)
    assert [settings.pause_ms(tries) for tries in (1, 2, 3, 4, 500)] == [10_000, 20_000, 40_000, 60_000, 60_000]
    assert settings.hold_ms == 40_000


def test_a_note_is_one_bounded_printable_line() -> None:
    assert one_line("a\tb\r\n\u202ec\x00") == "a b c"
    assert len(one_line("x" * 5000)) == NOTE_MAX
    assert one_line(None) == "None"


def test_two_plugins_cannot_answer_for_one_tool() -> None:
    registry = PluginRegistry({"make": "mcp__d__create"})
    registry.readback("make", print)
    registry.readback("mcp__d__create", print)
    with pytest.raises(ValueError, match="another readback"):
        registry.readback("mcp__d__create", repr)
    assert list(registry.registered.readbacks) == ["mcp__d__create"]
    assert Config().readbacks.max_tries == 8
