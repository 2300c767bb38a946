"""gunicorn with gevent workers, run by our own program: no configuration file, JSON logs, JSON errors."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import gevent.monkey
import structlog
from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.http.errors import (
    ConfigurationProblem,
    InvalidResponseHeader,
    InvalidResponseHeaderName,
    LimitRequestHeaders,
    LimitRequestLine,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.workers.ggevent import GeventWorker
from setproctitle import setproctitle

from ledger.config import Config
from service.door import EXTENSION, FrontDoor
from service.jsonio import dump
from service.problems import PROBLEMS, problem

log = structlog.get_logger(__name__)

TITLE = "mutation-ledger serve"
KEEPALIVE_SECONDS = 75
HUNG_SECONDS = 60
# Streams are bounded by themselves; these are for everything else.
SPARE_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class Serving:
    """How to serve. `graceful_seconds` bound a warm stop."""

    host: str
    port: int
    workers: int
    graceful_seconds: float


class FrontDoorWorker(GeventWorker):  # type: ignore[misc]  # gunicorn is not typed
    """A gevent worker that ends its streams at a warm stop and refuses malformed HTTP as JSON."""

    def init_process(self) -> None:
        """Called in the forked process: gevent patches the standard library, then the app is made."""
        setproctitle(TITLE)
        self._idle: set[tuple[Any, gevent.Timeout]] = set()
        with warnings.catch_warnings():
            # It names redis.asyncio, which was imported by the command line and is not used in this process.
            warnings.simplefilter("ignore", gevent.monkey.MonkeyPatchWarning)
            gevent.monkey.patch_all()
        super().init_process()

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        """One request; its headers leave together with the first piece of the answer."""
        gathering = _Gathering(sock)
        try:
            served = super().handle_request(listener_name, req, gathering, addr)
        except StopIteration:  # how gunicorn says that the connection closes after this answer
            gathering.flush()
            raise
        gathering.flush()
        return served

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM: take no new connection, end streams and waits, answer what is under way."""
        super().handle_exit(sig, frame)
        app: Flask = self.wsgi
        app.extensions[EXTENSION].stopping.set()
        gevent.spawn(self._end_idle)

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """Around the wait for a connection's next request; ends it after the keep-alive time or at a warm stop."""
        with gevent.Timeout(self.cfg.keepalive if self.alive else 0, False) as timeout:
            waiting = (gevent.getcurrent(), timeout)
            self._idle.add(waiting)
            try:
                yield
            finally:
                self._idle.discard(waiting)

    def _end_idle(self) -> None:
        # Kept-alive connections without a request would hold the stop for as long as it may take.
        for greenlet, timeout in list(self._idle):
            greenlet.kill(timeout, block=False)

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """A request that never became one, or an answer that could not be made; nothing of it is quoted or logged."""
        code = _code(exc)
        log.warning("request_not_served", error=type(exc).__name__, code=code)
        try:
            client.sendall(_raw_problem(code))
        except OSError:
            log.debug("refusal_not_sent")


class _Gathering:
    """A connection whose first write waits for the second: one packet and one wake-up of the client less."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._held: bytes | None = b""

    def sendall(self, data: bytes) -> None:
        """Sends `data`, but keeps what is sent first until `flush` or the next call."""
        if self._held == b"":
            self._held = data
            return
        self._sock.sendall((self._held or b"") + data)
        self._held = None

    def flush(self) -> None:
        """Sends what is still held."""
        if self._held:
            self._sock.sendall(self._held)
            self._held = None

    def shutdown(self, how: int) -> None:
        """Ends the connection; an answer that broke off is not begun either."""
        self._held = None
        self._sock.shutdown(how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class JsonLogger(Logger):  # type: ignore[misc]  # gunicorn is not typed
    """gunicorn's messages as JSON lines; requests and their headers never appear in them."""

    def setup(self, cfg: Any) -> None:
        """Needs no handlers: structlog writes."""

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        """No access log: metrics count requests."""

    def reopen_files(self) -> None:
        """There are no files."""

    def close_on_exec(self) -> None:
        """There are no files."""

    def critical(self, msg: str, *args: Any, **_: Any) -> None:
        """Written as an error."""
        self.error(msg, *args)

    def error(self, msg: str, *args: Any, **_: Any) -> None:
        """An error of the server itself."""
        log.error("gunicorn", message=_text(msg, args))

    def warning(self, msg: str, *args: Any, **_: Any) -> None:
        """A warning of the server itself."""
        log.warning("gunicorn", message=_text(msg, args))

    def info(self, msg: str, *args: Any, **_: Any) -> None:
        """Start and stop."""
        log.info("gunicorn", message=_text(msg, args))

    def debug(self, msg: str, *args: Any, **_: Any) -> None:
        """Not written."""

    def exception(self, msg: str, *args: Any, **_: Any) -> None:
        """The message's fixed part only: its arguments quote the request."""
        log.error("gunicorn", message=msg)

    def log(self, lvl: int, msg: str, *args: Any, **_: Any) -> None:
        """By level."""
        self.warning(msg, *args)


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn is not typed
    """The gunicorn application around `make_app`, which is called in each worker process."""

    def __init__(self, make_app: Callable[[], Flask], serving: Serving, max_streams: int) -> None:
        self._make_app = make_app
        self._serving = serving
        self._max_streams = max_streams
        super().__init__()

    def load_config(self) -> None:
        """Sets everything; gunicorn's own files and variables are not read."""
        serving = self._serving
        settings = {
            "bind": f"{serving.host}:{serving.port}",
            "workers": serving.workers,
            "worker_class": FrontDoorWorker,
            "worker_connections": self._max_streams + SPARE_CONNECTIONS,
            "graceful_timeout": max(1, round(serving.graceful_seconds)),
            "timeout": HUNG_SECONDS,
            "keepalive": KEEPALIVE_SECONDS,
            "logger_class": JsonLogger,
            # Nothing here depends on the scheme or the peer, so nobody's word for them is taken.
            "forwarded_allow_ips": "",
            "control_socket_disable": True,
            "pre_fork": _set_title,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """The app of one worker process."""
        return self._make_app()


def make_server(config: Config, serving: Serving, data_dir: Path) -> Server:
    """The server for a configuration."""

    def make_app() -> Flask:
        # Imported in the worker process, after gevent patched what it imports.
        from service.app import create_app  # noqa: PLC0415

        app = create_app(config, data_dir=data_dir)
        door: FrontDoor = app.extensions[EXTENSION]
        door.start()
        return app

    return Server(make_app, serving, config.service.max_streams)


def _set_title(_arbiter: Any, _worker: Any) -> None:
    """In the arbiter, after gunicorn set a title of its own."""
    setproctitle(TITLE)


def _text(msg: str, args: tuple[Any, ...]) -> str:
    return msg % args if args else msg


def _code(error: BaseException) -> str:
    match error:
        case LimitRequestLine():
            return "uri_too_long"
        case LimitRequestHeaders():
            return "headers_too_large"
        case UnsupportedTransferCoding():
            return "not_implemented"
        case InvalidResponseHeader() | InvalidResponseHeaderName() | ConfigurationProblem():
            return "internal_error"
        case ParseException():
            return "invalid_request"
        case _:
            return "internal_error"


def _raw_problem(code: str) -> bytes:
    kind = PROBLEMS[code]
    body = dump(problem(code, kind.title))
    head = (
        f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    return (head + body).encode("ascii")
