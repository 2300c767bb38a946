"""An MCP server that misbehaves on purpose; run by path, standard library only, so that it can be wrong.

The tool's name chooses what happens after the effect. Every start, request and effect is a line of JSON in the log,
fsynced before the answer, so a test counts what really happened. Settings are one JSON object in `FAKE_MCP`:

    log            path of the log (required)
    revision       "legacy" (initialize), "modern" (server/discover) or "neither"
    ignore_eof     keep running when stdin ends
    ignore_term    ignore SIGTERM
    no_list        never answer tools/list
    die_on_probe   exit when the first request is not initialize
    die_once       exit at the first probe ever, which this file remembers
    http           serve Streamable HTTP on 127.0.0.1; prints the port
    child          start a child that ignores everything and inherits the pipes
    gate           answer nothing before this file exists
    flood          how many notifications `flood` sends
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

# Run by path and isolated, it finds its own neighbours only this way.
sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.fake_mcp_results import ERRORS, OUTPUT_SCHEMA, RESULTS, TYPED, UNTYPED

# It takes whatever it is sent; CPython would refuse integers of more than 4,300 digits.
sys.set_int_max_str_digits(0)
SETTINGS: dict[str, Any] = json.loads(os.environ.get("FAKE_MCP", "{}"))

Message = dict[str, Any]
_log_lock = threading.Lock()
_out_lock = threading.Lock()


def note(event: str, **fields: Any) -> None:
    line = json.dumps({"event": event, "pid": os.getpid(), "at": time.time(), **fields}).encode() + b"\n"
    with _log_lock:
        log = os.open(SETTINGS["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, line)
        os.fsync(log)
        os.close(log)


def response(request: Message, tool: str) -> bytes:
    if tool in ERRORS:
        error = {"code": ERRORS[tool], "message": "the server says no"}
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
    result = RESULTS.get(tool, RESULTS["ok"])
    if SETTINGS.get("revision") == "modern" and '"resultType"' not in result and result.startswith("{"):
        result = '{"resultType":"complete",' + result[1:]
    return f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{result}}}'.encode()


def plain(request: Message, result: Message) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()


def tool_list() -> Message:
    names = [*RESULTS, *ERRORS, *STDIO_TOOLS, *HTTP_TOOLS]
    tools: list[Message] = [{"name": name, "inputSchema": TYPED if name == "typed" else UNTYPED} for name in names]
    for tool in tools:
        if tool["name"] in ("wrong_structured", "no_structured"):
            tool["outputSchema"] = OUTPUT_SCHEMA
    modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return {"tools": tools, **(modern if SETTINGS.get("revision") == "modern" else {})}


def answer_setup(request: Message) -> bytes | None:
    """The answer to anything but tools/call; None is silence."""
    method = request["method"]
    capabilities = {"tools": {"listChanged": True}}
    info = {"name": "fake", "version": "1"}
    modern = SETTINGS.get("revision") == "modern"
    if method == "server/discover" and modern:
        versions = {"supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private"}
        return plain(request, {"resultType": "complete", "capabilities": capabilities, **versions})
    if method == "initialize" and SETTINGS.get("revision", "legacy") == "legacy":
        return plain(request, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    if method == "tools/list":
        return None if SETTINGS.get("no_list") else plain(request, tool_list())
    if method == "ping":
        return plain(request, {})
    error = {"code": -32601, "message": "no such method"}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()


def effect(request: Message, text: str) -> str:
    params = request["params"]
    note("effect", tool=params["name"], arguments=params.get("arguments"), meta=params.get("_meta"), text=text)
    return str(params["name"])


# --- stdio -----------------------------------------------------------------------------------------------------


def emit(data: bytes) -> None:
    with _out_lock:
        os.write(1, b"") if not data else write_all(data + b"\n")


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def die(request: Message) -> None:
    os._exit(1)


def late(request: Message) -> None:
    seconds = request["params"]["arguments"]["seconds"]
    threading.Timer(seconds, lambda: emit(response(request, "ok"))).start()


def invalid_utf8(request: Message) -> None:
    emit(response(request, "ok").replace(b"T-42", b"\xc3\x28"))


def noise(request: Message) -> None:
    for stray in (b"Server ready", b"", b"{ a: 1 }", b"[INFO] listening", b'{"level":"info"}', b"{", b"\xff\xfe"):
        emit(stray)
    emit(response(request, "ok"))


def flood(request: Message) -> None:
    message = {"level": "info", "data": "x" * 100}
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": message}).encode()
    for _ in range(SETTINGS.get("flood", 20_000)):
        emit(line)
    emit(response(request, "ok"))


def half(request: Message) -> None:
    data = response(request, "ok")
    write_all(data[: len(data) // 2])


def twice(request: Message) -> None:
    emit(response(request, "ok"))
    emit(response(request, "is_error"))


def asks(request: Message) -> None:
    params = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
    emit(json.dumps({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": params}).encode())
    emit(response(request, "ok"))


def changes_list(request: Message) -> None:
    RESULTS["brand_new"] = RESULTS["ok"]
    emit(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).encode())
    emit(response(request, "ok"))


def answer(request: Message) -> None:
    emit(response(request, request["params"]["name"]))


def closes_output(request: Message) -> None:
    os.close(1)
    time.sleep(3600)


def stops_reading(request: Message) -> None:
    time.sleep(3600)


def nothing(request: Message) -> None:
    pass


STDIO_TOOLS: dict[str, Callable[[Message], None]] = {
    "hang": nothing,
    "answers_cancel": nothing,
    "exit": die,
    "late": late,
    "late_asked": late,
    "invalid_utf8": invalid_utf8,
    "noise": noise,
    "flood": flood,
    "half": half,
    "twice": twice,
    "asks": asks,
    "changes_list": changes_list,
    "slow": answer,
    "closes_output": closes_output,
    "stops_reading": stops_reading,
}


def on_cancel(message: Message, calls: dict[Any, Message]) -> None:
    request = calls.get(message["params"]["requestId"])
    note("cancelled", known=request is not None)
    if request is not None and request["params"]["name"] == "answers_cancel":
        emit(response(request, "ok"))


def dies_of_probe() -> bool:
    once = SETTINGS.get("die_once")
    if once is None or os.path.exists(once):
        return bool(SETTINGS.get("die_on_probe"))
    os.close(os.open(once, os.O_CREAT))
    return True


def serve_stdio() -> None:
    calls: dict[Any, Message] = {}
    for raw in sys.stdin.buffer:
        while not os.path.exists(SETTINGS.get("gate", SETTINGS["log"])):
            time.sleep(0.01)
        text = raw.decode()
        message = json.loads(text)
        note("received", method=message.get("method"))
        if message.get("method") == "notifications/cancelled":
            on_cancel(message, calls)
        elif message.get("method") == "tools/call":
            calls[message["id"]] = message
            if message["params"]["name"] == "slow":
                time.sleep(message["params"]["arguments"]["seconds"])
            tool = effect(message, text)
            STDIO_TOOLS.get(tool, answer)(message)
        elif "id" in message and "method" in message:
            if message["method"] == "server/discover" and dies_of_probe():
                os._exit(1)
            reply = answer_setup(message)
            if reply is not None:
                emit(reply)
    note("eof")
    while SETTINGS.get("ignore_eof"):
        time.sleep(3600)


# --- Streamable HTTP -------------------------------------------------------------------------------------------

HTTP_TOOLS = (
    *("status_202", "status_307", "status_404", "status_410", "status_500", "status_502"),
    *("sse", "sse_drop", "sse_drop_id", "sse_resume", "sse_asks", "drop", "http_late", "gzip", "http_half"),
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The request behind each stream that was given an event id, so that it can be resumed.
    streams: ClassVar[dict[str, Message]] = {}
    asked: ClassVar[threading.Event] = threading.Event()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        if self.path == "/moved":
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send(307, b"", {"Location": "/mcp"})
            return
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        message = json.loads(text)
        note(
            "received",
            method=message.get("method"),
            session=self.headers.get("Mcp-Session-Id"),
            port=self.client_address[1],
        )
        if "id" not in message or "method" not in message:
            self.send(202, b"")
            if message.get("id") == "q1":
                note("answered")
                Handler.asked.set()
        elif message["method"] == "tools/call":
            self.called(message, effect(message, text))
        else:
            reply = answer_setup(message)
            session = {"Mcp-Session-Id": f"s{time.time_ns()}"} if message["method"] == "initialize" else {}
            if reply is None:
                time.sleep(3600)
            self.send(200, reply or b"", {"Content-Type": "application/json", **session})

    def do_GET(self) -> None:
        last = self.headers.get("Last-Event-ID")
        note("received", method="GET", last=last)
        answer = Handler.streams.get(last or "")
        self.begin_stream()
        if answer is not None and answer["params"]["name"] == "sse_resume":
            self.event(response(answer, "ok"))
        self.close_connection = True

    def do_DELETE(self) -> None:
        note("received", method="DELETE")
        self.send(200, b"")

    def called(self, request: Message, tool: str) -> None:
        if tool.startswith("status_"):
            self.send(int(tool.removeprefix("status_")), b"", {"Location": self.path})
        elif tool.startswith("sse"):
            self.stream(request, tool)
        elif tool == "drop":
            self.close_connection = True
        elif tool == "http_half":
            body = response(request, tool)
            self.begin_answer(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            if tool == "http_late":
                time.sleep(request["params"]["arguments"]["seconds"])
            body, headers = response(request, tool), {"Content-Type": "application/json"}
            if tool == "gzip":
                body, headers = gzip.compress(body), {**headers, "Content-Encoding": "gzip"}
            self.send(200, body, headers)

    def stream(self, request: Message, tool: str) -> None:
        self.begin_stream()
        if tool == "sse":
            self.event(response(request, "ok"))
        elif tool == "sse_drop":
            self.wfile.write(b": hello\n\n")
        elif tool == "sse_asks":
            self.ask(request)
        else:
            with _log_lock:
                event = f"e{len(Handler.streams) + 1}"
                Handler.streams[event] = request
            self.wfile.write(f"id: {event}\nretry: 10\ndata: \n\n".encode())
        self.close_connection = True

    def ask(self, request: Message) -> None:
        """Asks the client on the call's own stream, once a file is there; the call is answered after that, or never."""
        how = request["params"]["arguments"]
        while "after" in how and not os.path.exists(how["after"]):
            time.sleep(0.01)
        params = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
        self.event(json.dumps({"jsonrpc": "2.0", "id": "q1", "method": how["method"], "params": params}).encode())
        Handler.asked.wait()
        if how.get("hang"):
            time.sleep(3600)
        self.event(response(request, "ok"))

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, data: bytes) -> None:
        self.wfile.write(b"id: end\ndata: " + data + b"\n\n")

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.begin_answer(status, {**(headers or {}), "Content-Length": str(len(body))})
        self.wfile.write(body)

    def begin_answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # Callers that hang up early are what this server is for.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def serve_http() -> None:
    server = Server(("127.0.0.1", SETTINGS.get("port", 0)), Handler)
    server.daemon_threads = True
    os.write(1, f"{server.server_address[1]}\n".encode())
    server.serve_forever()


def main() -> None:
    if SETTINGS.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("start")
    if SETTINGS.get("child"):
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", stubborn], start_new_session=True)
        note("child", child=child.pid)
    if SETTINGS.get("http"):
        serve_http()
    else:
        serve_stdio()


if __name__ == "__main__":
    main()
