"""After an erasure no byte of the session is left anywhere: no key, stream, journal, job, log line, or AOF byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import snapshot
from tests.support.case_tools import ASK, HELD, ODD, PAY
from tests.support.casework import follow
from tests.support.stack import AGENT, APPROVER, Api, Stack
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

MARKER = "marker-7f3c9a"
SESSION = f"s-{MARKER}"
ERASER = "eraser-token-9"
# Nothing may hide: neither a preamble in another format, nor compressed strings.
PLAIN = {"aof-use-rdb-preamble": "no", "rdbcompression": "no"}
CONFIG = f"""
[plugins]
modules = ["tests.support.case_tools"]
[timing]
lease_seconds = 2.0
[retention]
erase_rewrite_minutes = 0.001
[[tokens]]
name = "carol"
tenant = "acme"
roles = ["erase"]
sha256 = "{hashlib.sha256(ERASER.encode()).hexdigest()}"
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ValkeyProcess]:
    """A store whose files can be read byte by byte."""
    server = ValkeyProcess(tmp_path / "store", settings=PLAIN).start()
    yield server
    server.stop()


@pytest.fixture
def stack(store: ValkeyProcess, tmp_path: Path) -> Iterator[Stack]:
    """A front door and a worker."""
    made = Stack(tmp_path / "stack", store.url, CONFIG)
    made.add_front_door()
    made.add_worker()
    yield made
    made.stop()


def _files_with_marker(store: ValkeyProcess) -> list[str]:
    """Files of the store in which the marker can be read."""
    found = []
    for path in sorted(store.directory.rglob("*")):
        try:
            if path.is_file() and MARKER.encode() in path.read_bytes():
                found.append(path.name)
        except FileNotFoundError:  # the store has just thrown it away
            continue
    return found


def _live(api: Api) -> dict[str, Any]:
    """A session full of the marker: done, unknown, refused, waiting, with metadata and with readers."""
    marked = {"case": MARKER, "to": f"{MARKER}@example.invalid", MARKER: [MARKER]}
    done = api.trigger(SESSION, f"d-{MARKER}", [(PAY, marked)], user=MARKER, wait=20).body
    assert done["status"] == "completed"
    metadata = {
        "title": f"a {MARKER} b",
        "url": f"https://host.example/{MARKER}",
        "id": MARKER,
        "scope_identity": MARKER,
    }
    attached = api.post(
        "/api/mutation-metadata",
        {
            "session_id": SESSION, "agent": "ops", "user": MARKER, "delivery_id": f"d-{MARKER}",
            "mutation_id": done["calls"][0]["mutation_id"], "metadata": metadata,
        },
    )  # fmt: skip
    assert attached.body["title"] == f"a {MARKER} b"
    # The same again, a failure that nobody can judge, and a call that is out.
    api.trigger(SESSION, f"d-{MARKER}", [(PAY, marked)], user=MARKER, wait=20)
    api.trigger(SESSION, "d-odd", [(ODD, {"answer": MARKER, "case": MARKER})], user=MARKER, wait=20)
    out = api.trigger(SESSION, "d-out", [(HELD, marked | {"gate": "out"})], user=MARKER).body
    waiting = api.trigger(SESSION, "d-asked", [(ASK, marked)], user=MARKER).body
    other = api.trigger("bystander", "d-1", [(PAY, {"case": "bystander"})], wait=20).body
    assert other["status"] == "completed"
    return {"done": done, "out": out, "waiting": waiting}


@pytest.mark.acceptance
@pytest.mark.proves("C-82", "C-83", "C-84")
def test_nothing_is_left_of_an_erased_session(store: ValkeyProcess, stack: Stack) -> None:
    api = Api(stack.ports[0])
    client: Any = store.client()
    runs = _live(api)
    wait_until(lambda: [e for e in stack.effects() if e["op"] == HELD], 20, "the call to be out")
    kept = snapshot.holders(snapshot.take(client), MARKER)
    assert {key.partition("}:")[2].partition(":")[0] for key in kept} >= {
        "session",
        "args",
        "run",
        "approval",
        "outcomes",
    }
    assert any(name.endswith(".aof") for name in _files_with_marker(store))

    with follow(api, runs["waiting"]["run_id"]) as reader:
        assert reader.readline() == b"id: 1\n"
        reply = api.as_(ERASER).request("DELETE", f"/api/sessions/{SESSION}?wait=30", None, {})
        assert reply.status == 204
        (stack.directory / "gate-out").touch()
        assert 'event: error\ndata: {"type":"error","code":"not_found"}' in reader.read().decode()
    wait_until(lambda: "settlement_refused" in stack.logs(), 20, "the late report to be refused")
    # Refused requests that name it leave nothing behind either.
    again = api.trigger(SESSION, f"d-{MARKER}", [(PAY, {"case": MARKER})], user=MARKER)
    assert (again.status, again.body["code"]) == (410, "delivery_retired")
    assert api.outcomes(SESSION) == []

    assert snapshot.holders(snapshot.take(client), MARKER) == []
    for key in client.scan_iter("{rq}*"):
        assert MARKER.encode() not in client.dump(key)
    # A rewrite that began after the last piece was deleted; what refused requests wrote since holds no word of it.
    wait_until(lambda: not _files_with_marker(store), 30, "the rewrite to leave nothing of it")
    assert MARKER not in stack.logs()
    assert store.log.read_text().count(MARKER) == 0

    # The store comes back from what is left, and still refuses what was erased.
    store.kill9()
    store.restart()
    wait_until(lambda: Api(stack.ports[0], AGENT).get("/readyz").status == 200, 20, "the front door to be ready again")
    again = api.trigger(SESSION, f"d-{MARKER}", [(PAY, {"case": MARKER})], user=MARKER)
    assert (again.status, again.body["code"]) == (410, "delivery_retired")
    assert [o["status"] for o in api.outcomes("bystander")] == ["completed"]
    assert api.as_(APPROVER).get("/api/approvals").body["approvals"] == []
