"""Row 19: poison in bodies, arguments, paths and queries of a running stack, made by Hypothesis."""

from __future__ import annotations

import contextlib
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Handed, Traffic
from tests.faults.harness.world import World, alive
from tests.support.stack import APPROVER, Api, Reply
from tests.support.wait import wait_until

# One character of every kind that parsers, loggers and databases trip over.
NASTY = "\x00\x01\x1b\x7f\x85\u00ad\u200b\u2028\u202e\ufeff\ufffd\U0001f600\\\"'{}[]:%$\n\r\t"
WORDS = st.text(st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=())), max_size=40)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([10**400, 5e-324, 1e308, -0.0, 2**53 + 1])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=12,
)
DEEP = st.integers(1, 1200).map(lambda depth: b"[" * depth + b"]" * depth)
RAW = st.one_of(
    st.binary(max_size=200),
    DEEP,
    st.sampled_from(
        [
            b'{"a":1,"a":2}',
            b'{"a":NaN}',
            b'{"a":1e400}',
            b'{"a":"\\ud800"}',
            b'{"a":0x1}',
            b'{"a":01}',
            b'{"a":' + b"9" * 20_000 + b"}",
            b'"' + b"x" * 300_000 + b'"',
            b"\xef\xbb\xbf{}",
            "{}".encode("utf-16"),
            b"{",
            b"",
            b"null",
        ]
    ),
)  # fmt: skip
FIELDS = (
    "session_id",
    "agent",
    "user",
    "delivery_id",
    "logical_turn_id",
    "on_error",
    "calls",
    "handler",
    "input",
    "text",
)
# A session keeps 50 turns; what it forgets could not be checked any more.
A_SESSION = 30
HEADERS = ("Accept", "Content-Type", "X-Request-ID", "traceparent", "Idempotency-Key", "Authorization")


@st.composite
def bodies(draw: st.DrawFn, number: int) -> bytes:
    """A request that fits but for its arguments, or for one field, or not at all."""
    kind = draw(st.sampled_from(("arguments", "arguments", "raw arguments", "field", "raw")))
    if kind == "raw":
        return draw(RAW)
    name = f"poison-{number}"
    arguments = {"id": name, "poison": draw(VALUES)}
    body: dict[str, Any] = {
        "session_id": f"t-poison-{number // A_SESSION}", "agent": "ops", "user": "dana", "delivery_id": name,
        "calls": [{"tool": "act", "arguments": arguments}], "on_error": "continue",
    }  # fmt: skip
    if kind == "field":
        body[draw(st.one_of(st.sampled_from(FIELDS), WORDS))] = draw(VALUES)
    text = json.dumps(body).encode("utf-8", "surrogatepass")
    if kind == "raw arguments":
        return text.replace(json.dumps(arguments).encode(), b'{"id":"' + name.encode() + b'","p":' + draw(RAW) + b"}")
    return text


HEADER_VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60)
PATHS = st.sampled_from(
    ("/api/runs/{}", "/api/runs/{}/events", "/api/approvals/{}", "/api/mutation-outcomes?session_id={}",
     "/api/mutation-events?session_id={}&logical_turn_id={}", "/api/mutation-state?session_id=s&delivery_id={}",
     "/api/approvals?session_id={}", "/{}", "/api/runs/x/events?after={}&follow={}")
)  # fmt: skip


def poison(folder: Path, seed_: int, examples: int = 150) -> Tally:
    """Row 19. Every answer is below 500 and no process dies; what was admitted ends as any run does."""
    with World(folder, seed_) as world:
        world.start(workers=2)
        traffic = world.traffic(pause=0.2)
        processes = (*world.stack.workers, *world.stack.front_doors)
        settled = settings(
            max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        numbers = iter(range(10**9))

        @seed(seed_)
        @settled
        @given(data=st.data())
        def attack(data: st.DataObject) -> None:
            world.count("poison")
            if data.draw(st.booleans()):
                body = data.draw(bodies(next(numbers)))
                headers = data.draw(st.dictionaries(st.sampled_from(HEADERS[:-1]), HEADER_VALUES, max_size=1))
                _admitted(world, traffic, body, _send(world.api, "POST", "/api/trigger", body, headers))
            else:
                token = data.draw(st.sampled_from((world.api.token, APPROVER)))
                words = quote(data.draw(WORDS).encode("utf-8", "surrogatepass"))
                path = data.draw(PATHS).replace("{}", words)
                method = data.draw(st.sampled_from(("GET", "POST", "DELETE", "PUT")))
                body = data.draw(RAW)
                reply = _send(world.api.as_(token), method, path, body if method != "GET" else b"", {})
                _below_500(world, method, path, reply)

        attack()
        dead = [process for process in processes if not alive(process)]
        if dead or _restarts(world):
            world.violations.append(f"I4: {len(dead)} processes, or a part of them, died of poison")
        traffic.finish(90)
        world.check(ended=True)
        return Tally.of(world)


def _send(api: Api, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply | None:
    """The answer; None if the server would not read it: it closed the connection on what is no HTTP."""
    with contextlib.suppress(http.client.HTTPException, ConnectionError, ValueError):
        return Api(api.port, api.token, timeout=20).request(method, path, body, headers)
    return None


def _below_500(world: World, method: str, path: str, reply: Reply | None) -> None:
    if reply is not None and reply.status >= 500 and reply.status != 501:
        world.violations.append(f"I8: {method} {path[:80]!r} is answered {reply.status}")


def _admitted(world: World, traffic: Traffic, body: bytes, reply: Reply | None) -> None:
    _below_500(world, "POST", "/api/trigger", reply)
    if reply is None or reply.status not in (200, 202):
        return
    run = reply.body["run_id"]
    ended: dict[str, Any] = {}

    def over() -> bool:
        ended.update(world.api.run(run))
        return ended["status"] in ("completed", "failed", "cancelled")

    wait_until(over, 30, "what poison was admitted as to end")
    handed = Handed(
        ended["session_id"], "poison", {}, run, [call["mutation_id"] for call in reply.body["calls"]], ended
    )
    traffic.acks.handed.append(handed)


def _restarts(world: World) -> bool:
    """Whether gunicorn had to replace a process that answers, or a part of a worker crashed."""
    logs = world.stack.logs()
    return any(word in logs for word in ("Worker exiting", "was sent SIG", "request_crashed", "path_failed"))
