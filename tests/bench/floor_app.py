"""The floor over HTTP: an empty Flask route with our token check and one confirmed write, under our gunicorn settings.

`python -m tests.bench.floor_app STORE_URL PORT CONFIG`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flask import Flask, Response, request

from ledger.config import load
from ledger.tokens import TokenBook
from service.door import EXTENSION
from service.server import Server, Serving
from tests.bench.floor import INTENT

MAX_STREAMS = 1000


def make_app(url: str, config_file: Path) -> Flask:
    """The app of one worker process."""
    from redis import Redis

    tokens = TokenBook.load(load(config_file))
    clients: list[Any] = []
    sha: str = Redis.from_url(url).script_load(INTENT)
    app = Flask(__name__)
    app.extensions[EXTENSION] = SimpleNamespace(stopping=threading.Event())

    @app.post("/floor")
    def floor() -> Response | tuple[str, int]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or tokens.authenticate(token.strip()) is None:
            return "", 401
        body = request.get_json()
        client = clients.pop() if clients else Redis.from_url(url, single_connection_client=True)
        pipeline = client.pipeline(transaction=False)
        pipeline.evalsha(sha, 1, f"floor:{body['session_id']}", body["delivery_id"], "x" * 200)
        pipeline.execute_command("WAITAOF", 1, 0, 5000)
        _, confirmed = pipeline.execute()
        clients.append(client)
        return Response('{"ok":true}' if confirmed[0] else "{}", mimetype="application/json")

    @app.get("/readyz")
    def ready() -> str:
        return "ready"

    return app


def main(url: str, port: int, config_file: Path) -> None:
    """Serves until SIGTERM."""
    Server(lambda: make_app(url, config_file), Serving("127.0.0.1", port, 1, 5.0), MAX_STREAMS).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
