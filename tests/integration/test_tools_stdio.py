"""What each answer of a stdio server proves, and that the server acted exactly once (cases C01 C07 C26 C40)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.fake_answers import STDIO_ANSWERS
from tests.support.tool_calls import FakeServer, call_context, call_one, routed
from tests.support.wait import wait_until_async
from workers.tools import Verdict

COMPLETED, FAILED, UNKNOWN = Verdict.COMPLETED, Verdict.FAILED, Verdict.OUTCOME_UNKNOWN


@pytest.mark.proves("C-56")
@pytest.mark.parametrize("revision", ["legacy", "modern"])
@pytest.mark.parametrize(("tool", "verdict", "withheld"), STDIO_ANSWERS)
def test_every_answer_means_one_effect_and_one_verdict(
    tmp_path: Path, revision: str, tool: str, verdict: Verdict, withheld: bool
) -> None:
    fake = FakeServer(tmp_path, revision=revision)
    reply = call_one(fake.stdio(), tool)
    assert (reply.verdict, reply.content_withheld, reply.reason) == (verdict, withheld, None)
    assert (reply.content is None) == (withheld or verdict is UNKNOWN)
    assert fake.effects() == 1
    assert len(fake.events("received", method="tools/call")) == 1


@pytest.mark.proves("C-56")
def test_a_result_is_kept_as_the_server_sent_it(tmp_path: Path) -> None:
    reply = call_one(FakeServer(tmp_path).stdio(), "wrong_structured")
    text = {"type": "text", "text": "created T-42"}
    assert reply.content == {"content": [text], "structuredContent": {"id": 7}}


@pytest.mark.proves("C-56")
def test_tools_are_listed_before_the_first_call_and_not_after_it(tmp_path: Path) -> None:
    """Case F6: a list request after the effect could lose a good reply."""
    fake = FakeServer(tmp_path)
    assert call_one(fake.stdio(), "no_structured").verdict is COMPLETED
    methods = [line["method"] for line in fake.events("received")]
    assert methods == [
        "server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"
    ]  # fmt: skip


@pytest.mark.proves("C-53", "C-56")
@pytest.mark.parametrize("settings", [{"no_list": True}, {"revision": "neither"}])
def test_a_server_that_never_became_ready_got_no_call(tmp_path: Path, settings: dict[str, object]) -> None:
    fake = FakeServer(tmp_path, **settings)
    reply = call_one(fake.stdio(), "ok", call_context(0.8))
    assert reply.verdict is Verdict.NOT_EXECUTED
    assert fake.effects() == 0


@pytest.mark.proves("C-56")
def test_a_command_that_does_not_exist_is_not_executed(tmp_path: Path) -> None:
    config = FakeServer(tmp_path).stdio().model_copy(update={"command": [str(tmp_path / "absent")]})
    reply = call_one(config, "ok")
    assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, None)


def test_a_server_that_dies_of_the_newest_handshake_is_asked_the_older_one(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path, die_on_probe=True)
    assert call_one(fake.stdio(), "ok").verdict is COMPLETED
    assert len(fake.events("start")) == 2


def test_a_new_server_that_was_killed_during_the_handshake_is_asked_again(tmp_path: Path) -> None:
    """Nothing says that it is an older one: what it speaks must not be given up for good."""
    fake = FakeServer(tmp_path, revision="modern", die_once=str(tmp_path / "died"))
    assert call_one(fake.stdio(), "ok").verdict is COMPLETED
    assert len(fake.events("start")) == 3


@pytest.mark.proves("C-56")
@pytest.mark.parametrize("tool", ["exit", "closes_output", "invalid_utf8", "huge_read"])
def test_after_a_lost_connection_the_next_call_gets_a_fresh_server(tmp_path: Path, tool: str) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            started = time.monotonic()
            assert (await router.call(f"mcp__fake__{tool}", {}, call_context())).verdict is UNKNOWN
            assert time.monotonic() - started < 5, "the end of the stream was not noticed"
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is COMPLETED

    asyncio.run(main())
    assert fake.effects() == 2
    assert len(fake.events("start")) == 2


@pytest.mark.proves("C-56")
def test_one_lost_connection_makes_every_call_on_it_unknown_and_repeats_none(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            hanging = [asyncio.create_task(router.call("mcp__fake__hang", {}, call_context())) for _ in range(5)]
            await wait_until_async(lambda: fake.effects() == 5, 5, "five calls in flight")
            await router.call("mcp__fake__exit", {}, call_context())
            assert {reply.verdict for reply in await asyncio.gather(*hanging)} == {UNKNOWN}

    asyncio.run(main())
    assert fake.effects() == 6


def test_whoever_asks_when_a_connection_has_just_been_opened_takes_that_one(tmp_path: Path) -> None:
    """Found by the soak: a second connection took its place, and the first one stayed open for good."""
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is COMPLETED
            server = router._servers["fake"]
            # As a call does that saw none, and whose turn comes only now.
            assert await server._open_once() is server._connection
            assert len(server._connections) == 1

    asyncio.run(main())
    assert len(fake.events("start")) == 1


def test_calls_run_side_by_side_up_to_the_servers_limit(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio(concurrency=2)) as router:
            calls = [
                asyncio.create_task(router.call("mcp__fake__late", {"seconds": 0.3}, call_context(seconds)))
                for seconds in (10, 10, 10, 0.1)
            ]
            replies = await asyncio.gather(*calls)
            verdicts = [reply.verdict for reply in replies]
            assert verdicts == [COMPLETED, COMPLETED, COMPLETED, Verdict.NOT_EXECUTED]
            assert replies[3].reason == "pre_dispatch_deadline"

    asyncio.run(main())
    effects = [line["at"] for line in fake.events("effect")]
    assert len(effects) == 3
    assert effects[2] - effects[0] > 0.25, "the third call did not wait for a slot"


def test_a_tool_the_server_does_not_list_is_asked_for_once_more_and_refused(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)
    reply = call_one(fake.stdio(), "absent")
    assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, "unknown_tool")
    assert len(fake.events("received", method="tools/list")) == 2
    assert fake.effects() == 0


def test_the_catalog_follows_the_server(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio(), wait_seconds=10) as router:
            assert router.listed()["fake"]["ok"] == {"type": "object"}
            assert "brand_new" not in router.listed()["fake"]
            await router.call("mcp__fake__changes_list", {}, call_context())
            await wait_until_async(lambda: "brand_new" in router.listed()["fake"], 5, "the changed list")

    asyncio.run(main())
