"""The API client and the inbox commands against a real front door, and against one that misbehaves."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from ledger.client import Client, ServiceUnavailable
from ledger.client import client as client_module
from ledger.errors import ConfigError, InvalidRequest, LedgerError, Refused, StoreUnavailable
from tests.support.cli import Ran, run
from tests.support.service import ASK, AUTO, CONFIRM, Bench
from tests.support.valkey import free_port

Cli = Callable[..., Ran]
EXACT = {"amount": 18446744073709551617, "all": 10**5000, "rate": 1.0, "to": "café", "trick": "\u202egnp.exe\x1b[2J"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to stand in and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MUTATION_LEDGER")]:
        monkeypatch.delenv(name)


@pytest.fixture
def url(bench: Bench) -> Iterator[str]:
    """The front door of `bench` on a loopback port."""
    server = make_server("127.0.0.1", 0, bench.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def ml(url: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    """An inbox command as bob, who may approve."""
    return lambda *arguments: run(capsys, *arguments, "--url", url, "--token", "bob")


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def test_a_delivery_goes_out_exactly_and_comes_back_typed(url: str, bench: Bench) -> None:
    client = Client(url, "host")
    made = client.trigger("s1", [call(ASK, **EXACT)], agent="ops", user="dana", delivery_id="d1")
    assert made["status"] == "waiting_for_approval"
    assert client.trigger("s1", [call(ASK, **EXACT)], agent="ops", user="dana", delivery_id="d1") == made
    (waiting,) = Client(url, "bob").approvals(session_id="s1")
    assert waiting["arguments"] == EXACT
    assert waiting["id"] == made["calls"][0]["approval_id"]
    assert Client(url, "bob").approval(waiting["id"]) == waiting
    assert Client(url, "bob").decide(waiting["id"], "approve", comment="fine")["state"] == "approved"
    bench.finish(made)  # type: ignore[arg-type]  # a typed dict is a dict
    assert client.run(made["run_id"])["status"] == "completed"
    assert [record["status"] for record in client.outcomes("s1")] == ["completed"]
    assert [event["type"] for event in client.events(made["run_id"])][-2:] == ["run_completed", "done"]
    assert next(client.events(made["run_id"], after=2))["n"] == 3


def test_a_stream_ends_with_done(url: str, bench: Bench) -> None:
    client = Client(url, "host")
    events = client.trigger_stream("s1", [call(AUTO, n=1)])
    assert next(events)["type"] == "run_started"
    (shard,) = [shard for shard in range(bench.door.shards) if _ready(bench, shard)]
    _finish(bench, shard)
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "done"
    assert "mutation_outcome" in kinds


def test_cancelling_answers_what_happened(url: str) -> None:
    client = Client(url, "host")
    made = client.trigger("s1", [call(ASK, n=1)])
    assert client.cancel(made["run_id"])["status"] == "cancelled"
    assert client.run(made["run_id"])["status"] == "cancelled"


def test_problems_are_errors_with_their_code(url: str) -> None:
    client = Client(url, "host", retry_seconds=0)
    with pytest.raises(InvalidRequest) as bad:
        client.trigger("s1", [])
    assert (bad.value.code, bad.value.extra["status"]) == ("invalid_request", 400)
    client.trigger("s1", [call(AUTO, n=1)], delivery_id="d")
    with pytest.raises(Refused) as other:
        client.trigger("s1", [call(AUTO, n=2)], delivery_id="d")
    assert (other.value.code, other.value.retryable) == ("delivery_mismatch", False)
    with pytest.raises(Refused) as unknown:
        client.run("nope/../x?y")
    assert unknown.value.code == "not_found"
    with pytest.raises(Refused) as stranger:
        Client(url, "nobody-knows").approvals()
    assert stranger.value.extra["status"] == 401


@pytest.mark.parametrize("bad", ["127.0.0.1:1", "ftp://x", "http://", "/api"])
def test_a_url_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="must begin with http"):
        Client(bad, "token")


@pytest.mark.parametrize("bad", ["", "a\nb", "é"])
def test_a_token_that_is_none_is_refused_and_not_quoted(bad: str) -> None:
    with pytest.raises(ConfigError, match="no usable token: give --token or set MUTATION_LEDGER_TOKEN"):
        Client("http://127.0.0.1:1", bad)


def test_what_json_cannot_say_is_refused_before_it_is_sent() -> None:
    for argument in (float("nan"), {1, 2}, object()):
        with pytest.raises(InvalidRequest):
            Client("http://127.0.0.1:1", "t").trigger("s", [call(AUTO, n=argument)])


class Moody(http.server.BaseHTTPRequestHandler):
    """Answers each POST with the next of `moods`: an HTTP status, or None to hang up without an answer."""

    moods: list[tuple[int, str, str] | None]
    bodies: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        mood = self.moods.pop(0)
        if mood is None:
            return
        status, kind, body = mood
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing: standard error is for the test."""


@pytest.fixture
def moody() -> Iterator[tuple[str, type[Moody]]]:
    """A front door that fails as it is told to."""
    kind = type("Told", (Moody,), {"moods": [], "bodies": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", kind
    server.shutdown()
    thread.join(10)
    server.server_close()


BUSY = (503, "application/problem+json", '{"code": "store_unconfirmed", "detail": "later"}')
GATEWAY = (502, "text/html", "<html>")
FINE = (202, "application/json", '{"run_id": "r", "status": "queued", "calls": []}')
NOT_JSON = (200, "text/html", "<html>")


@pytest.mark.proves("C-26")
def test_a_delivery_is_sent_again_under_one_id_until_it_is_answered(moody: tuple[str, type[Moody]]) -> None:
    url, told = moody
    told.moods += [None, BUSY, GATEWAY, FINE]
    assert Client(url, "t").trigger("s", [call(AUTO, n=1)])["run_id"] == "r"
    assert len(told.bodies) == 4
    assert told.bodies[0]["delivery_id"]
    assert all(body == told.bodies[0] for body in told.bodies)


@pytest.mark.proves("C-26")
def test_giving_up_names_the_delivery(moody: tuple[str, type[Moody]]) -> None:
    url, told = moody
    told.moods += [BUSY]
    with pytest.raises(StoreUnavailable, match="later; deliver again as ") as caught:
        Client(url, "t", retry_seconds=0).trigger("s", [call(AUTO, n=1)])
    assert caught.value.extra["delivery_id"] == told.bodies[0]["delivery_id"]
    assert caught.value.retryable
    told.moods += [(200, "application/x-ndjson", '{"type": "run_started"}\n')]
    with pytest.raises(ServiceUnavailable, match="ended before the run did; deliver again as d9"):
        list(Client(url, "t", retry_seconds=0).trigger_stream("s", [call(AUTO, n=1)], delivery_id="d9"))


class Torn(http.server.BaseHTTPRequestHandler):
    """Streams pieces of one run's journal and hangs up in between, as a front door that is killed would."""

    asked: list[str]
    pieces: list[list[dict[str, Any]]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._stream()

    def do_GET(self) -> None:
        self._stream()

    def _stream(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Content-Length", "100000")
        self.end_headers()
        for event in self.pieces.pop(0) if self.pieces else []:
            self.wfile.write(json.dumps(event).encode() + b"\n")

    def log_message(self, *_: Any) -> None:
        """Nothing: standard error is for the test."""


def event(number: int, kind: str = "tool_result") -> dict[str, Any]:
    return {"n": number, "type": kind, "run_id": "r"}


@pytest.fixture
def torn() -> Iterator[tuple[str, type[Torn]]]:
    """A front door whose streams break."""
    kind = type("Breaking", (Torn,), {"asked": [], "pieces": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", kind
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.mark.proves("C-112")
def test_a_broken_stream_goes_on_after_the_last_event_seen(torn: tuple[str, type[Torn]]) -> None:
    url, told = torn
    beat = {"type": "heartbeat"}
    told.pieces += [[], [event(1), event(2)], [beat], [event(3), beat, event(4)], [event(4, "done")]]
    seen = list(Client(url, "t").trigger_stream("s", [call(AUTO, n=1)]))
    assert [one["n"] for one in seen] == [1, 2, 3, 4, 4]
    assert [one["type"] for one in seen][-1] == "done"
    later = [f"GET /api/runs/r/events?after={n}&follow=1" for n in (2, 2, 4)]
    assert told.asked == ["POST /api/trigger", "POST /api/trigger", *later]
    told.asked.clear()
    told.pieces += [[event(8)], [event(9, "done")]]
    assert [one["n"] for one in Client(url, "t").events("r", after=7, follow=True)] == [8, 9]
    assert told.asked == [f"GET /api/runs/r/events?after={n}&follow=1" for n in (7, 8)]


@pytest.mark.proves("C-112")
def test_a_stream_that_cannot_go_on_is_an_error(torn: tuple[str, type[Torn]]) -> None:
    url, told = torn
    told.pieces += [[event(1), {"type": "error", "code": "not_found"}]]
    with pytest.raises(Refused) as gone:
        list(Client(url, "t").events("r", follow=True))
    assert gone.value.code == "not_found"
    told.pieces += [[event(1), {"type": "error", "code": "store_unavailable"}], [event(2, "done")]]
    assert [one["n"] for one in Client(url, "t").events("r", follow=True)] == [1, 2]
    with pytest.raises(ServiceUnavailable, match="ended before the run did"):
        list(Client(url, "t", retry_seconds=0.3).events("r", follow=True))


def test_nothing_else_is_ever_sent_again(moody: tuple[str, type[Moody]]) -> None:
    url, told = moody
    for mood, kind in ((None, ServiceUnavailable), (BUSY, StoreUnavailable), (NOT_JSON, ServiceUnavailable)):
        told.moods.append(mood)
        with pytest.raises(kind):
            Client(url, "t").decide("00", "approve")
    assert len(told.bodies) == 3


def test_refusals_are_not_sent_again(moody: tuple[str, type[Moody]]) -> None:
    url, told = moody
    told.moods += [(409, "application/json", '{"code": "logical_turn_unavailable"}'), (500, "text/html", "oops")]
    for code in ("logical_turn_unavailable", "http_500"):
        with pytest.raises(LedgerError) as caught:
            Client(url, "t").trigger("s", [call(AUTO, n=1)])
        assert caught.value.code == code
    assert len(told.bodies) == 2


@pytest.mark.proves("C-40", "C-42")
def test_the_inbox_shows_exact_arguments_and_nothing_a_terminal_obeys(ml: Cli, bench: Bench) -> None:
    made = bench.trigger((ASK, EXACT), user="dana")
    ran = ml("approvals")
    assert ran.code == 0
    assert "18446744073709551617" in ran.out
    assert "1.0" in ran.out
    assert "café" in ran.out
    assert "\\u202egnp.exe\\u001b[2J" in ran.out
    assert ran.out.isascii() is False
    assert all(character.isprintable() or character == "\n" for character in ran.out)
    assert made["calls"][0]["approval_id"] in ran.out
    assert ml("approvals", "--json").json["approvals"][0]["arguments"] == EXACT
    assert ml("approvals", "--session", "other").out == "nothing waits for a decision\n"


@pytest.mark.proves("C-41", "C-42")
def test_approving_and_denying_in_a_terminal(ml: Cli, bench: Bench) -> None:
    made = bench.trigger((ASK, {"n": 1}), (CONFIRM, {"n": 2}), user="dana")
    first, second = (one["approval_id"] for one in made["calls"])
    ran = ml("approve", first, "--comment", "fine")
    assert (ran.code, ran.out) == (0, f"approved: {ASK} in session s1\n")
    assert ml("approve", first, "--json").json["state"] == "approved"
    late = ml("deny", first)
    assert (late.code, late.err.count("\n")) == (1, 1)
    unconfirmed = ml("approve", second)
    assert (unconfirmed.code, "add --confirm with the exact name of its tool" in unconfirmed.err) == (1, True)
    assert ml("approve", second, "--confirm", ASK).code == 1
    assert ml("approve", second, "--confirm", CONFIRM).code == 0


@pytest.mark.proves("C-42")
def test_a_token_that_may_not_decide_is_told_which_may(url: str, bench: Bench, capsys: Any) -> None:
    made = bench.trigger((ASK, {"n": 1}), as_="eve")
    approval = made["calls"][0]["approval_id"]
    for token, fix in (("host", "role approve"), ("eve", "another person decides"), ("who", "MUTATION_LEDGER_TOKEN")):
        ran = run(capsys, "approve", approval, "--url", url, "--token", token)
        assert (ran.code, fix in ran.err) == (1, True), ran.err
        assert token not in ran.err.split()
    other = run(capsys, "approve", approval, "--url", url, "--token", "other")
    assert "see `mutation-ledger approvals`" in other.err
    assert run(capsys, "deny", approval, "--url", url, "--token", "bob").out == f"denied: {ASK} in session s1\n"


def test_no_front_door_is_one_line_with_the_fix(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("MUTATION_LEDGER_TOKEN", "secret-token")
    for command in (["approvals"], ["approve", "00"], ["deny", "00"]):
        ran = run(capsys, *command, "--url", url)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "start `mutation-ledger up`, or give --url" in ran.err
        assert "secret-token" not in ran.err


def _ready(bench: Bench, shard: int) -> bool:
    return bool(bench.door.store.command([["ZCARD", f"ml:{{{shard:02x}}}:ready"]])[0])


def _finish(bench: Bench, shard: int) -> None:
    bench.finish({"run_id": f"{shard:02x}"})


@pytest.mark.proves("C-40")
def test_the_inbox_is_read_page_by_page_to_its_end(url: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE_APPROVALS", 2)
    run = bench.trigger(*[(ASK, {"n": n}) for n in range(5)])
    asked = [one["approval_id"] for one in run["calls"]]
    assert [one["id"] for one in Client(url, "bob").approvals()] == asked
    assert [one["id"] for one in Client(url, "bob").approvals(limit=3)] == asked[:3]
