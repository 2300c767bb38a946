"""Arguments live in one place while they are needed, and nowhere once their call has ended (C-83, I9)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.stack import APPROVER, Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

SECRET = "carla-4711@secret.invalid"
ARGUMENTS = re.compile(rb"^ml:\{[0-9a-f]{2}\}:args:[0-9a-f]{32}$")
FAKE = Path(__file__).parents[1] / "support" / "fake_mcp.py"
FAKE_TOOLS = ("ok", "is_error", "error_32602", "exit", "bad_content", "invalid_utf8")


def holders(client: redis.Redis, text: str) -> list[bytes]:
    """Every key whose name or content holds `text`, read by type: a dump would be compressed."""
    return [key for key in client.scan_iter("*") if text.encode() in key + content(client, key)]


def content(client: Any, key: bytes) -> bytes:
    """All of a key's content as bytes."""
    match client.type(key):
        case b"string":
            parts = client.get(key)
        case b"hash":
            parts = client.hgetall(key)
        case b"list":
            parts = client.lrange(key, 0, -1)
        case b"zset":
            parts = client.zrange(key, 0, -1)
        case b"set":
            parts = client.smembers(key)
        case b"stream":
            parts = client.xrange(key)
        case b"none":  # gone since it was listed
            parts = None
        case other:
            raise AssertionError(f"a key of type {other!r} that this test cannot read")
    return b"" if parts is None else b" ".join(flat(parts))


def flat(value: Any) -> list[bytes]:
    """All bytes inside a reply."""
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, dict):
        return [part for pair in value.items() for item in pair for part in flat(item)]
    return [part for item in value for part in flat(item)] if isinstance(value, list | tuple | set) else []


def config(log: Path) -> str:
    """Native tools, and an MCP server that misbehaves with everything it gets."""
    env = json.dumps(json.dumps({"log": str(log)}))
    tools = json.dumps([f"mcp__fake__{tool}" for tool in FAKE_TOOLS])
    return (
        native_section()
        + quick_section(tool_timeout_seconds=3.0)
        + f"[mcp.servers.fake]\ncommand = {json.dumps([sys.executable, str(FAKE)])}\nenv = {{ FAKE_MCP = {env} }}\n"
        + f"[policy]\nmutation_tools = {tools}\n"
    )


@pytest.mark.acceptance
@pytest.mark.proves("C-83")
def test_arguments_are_kept_apart_and_deleted(valkey: ValkeyProcess, tmp_path: Path) -> None:
    client = valkey.client()
    with Stack(tmp_path / "stack", valkey.url, config(tmp_path / "fake.jsonl")) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        secret = {"id": "one", "to": SECRET}

        asked = api.trigger("session-1", "d1", [("approved_pay", secret | {"after": 1.0})]).body
        assert_kept_apart(client)
        approval = asked["calls"][0]["approval_id"]
        assert api.as_(APPROVER).get(f"/api/approvals/{approval}").body["arguments"]["to"] == SECRET
        api.approve(approval)
        wait_until(stack.effects, 20, "the effect")
        assert_kept_apart(client)
        api.ended(asked["run_id"])
        assert holders(client, SECRET) == []
        assert api.as_(APPROVER).get(f"/api/approvals/{approval}").body["arguments"] is None

        denied = api.trigger("session-2", "d1", [("approved_pay", secret)]).body
        api.as_(APPROVER).post(f"/api/approvals/{denied['calls'][0]['approval_id']}", {"decision": "deny"})
        api.ended(denied["run_id"])
        cancelled = api.trigger("session-3", "d1", [("approved_pay", secret)]).body
        api.post(f"/api/runs/{cancelled['run_id']}/cancel")
        api.trigger("session-4", "d1", [("look", secret)], wait=20)
        assert holders(client, SECRET) == []

        # What nobody knows the end of is kept, so that a person can see what was tried.
        for tool in FAKE_TOOLS:
            api.trigger(f"fake-{tool}", "d1", [(f"mcp__fake__{tool}", secret)], wait=20)
        broken = api.trigger("session-5", "d1", [("break_off", secret)], wait=20).body
        assert broken["calls"][0]["status"] == "outcome_unknown"
        assert_kept_apart(client)

        refuse_everything(api)
        assert_kept_apart(client)
    assert SECRET.encode() in (tmp_path / "fake.jsonl").read_bytes()
    # Also what clients and libraries say while they stop.
    assert "carla" not in stack.logs()


def assert_kept_apart(client: redis.Redis) -> None:
    """Somewhere, and only where arguments belong; no RQ job, journal, run or session holds them."""
    found = holders(client, SECRET)
    assert found
    assert [key for key in found if not ARGUMENTS.match(key)] == []


def refuse_everything(api: Api) -> None:
    """Requests that are refused for their arguments or beside them; no answer quotes them."""
    deep: Any = SECRET
    for _ in range(70):
        deep = [deep]
    bodies: list[Any] = [
        {"session_id": "s", "calls": [{"tool": "pay", "arguments": {"to": SECRET}, "extra": SECRET}]},
        {"session_id": "s", "calls": [{"tool": "nobody_has_this", "arguments": {"to": SECRET}}]},
        {"session_id": "s", "calls": [{"tool": "pay", "arguments": {"to": deep}}]},
        {"session_id": "s", "calls": [{"tool": "pay", "arguments": SECRET}]},
        f'{{"session_id": "s", "calls": [{{"tool": "pay", "arguments": {{"to": "{SECRET}", "n": NaN}}}}]}}'.encode(),
        f'{{"session_id": "s", "{SECRET}": 1, "{SECRET}": 2}}'.encode(),
    ]
    for body in bodies:
        reply = api.post("/api/trigger", body)
        assert 400 <= reply.status < 500, reply
        assert SECRET not in json.dumps(reply.body)
