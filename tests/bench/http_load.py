"""64 kept-alive HTTP clients in one process: the same for our front door, the empty route and Restate's ingress.

`python -m tests.bench.http_load PORT KIND`, KIND one of `own`, `floor`, `restate`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.own import Sessions
from tests.bench.plugin import TOOL
from tests.bench.protocol import serve_async
from tests.support.stack import AGENT

CONNECTIONS = 64
SESSIONS, PER_SESSION = 1000, 10


@dataclass(frozen=True, slots=True)
class Kind:
    """What one unit is: where it is posted, its body, and what the answer must hold."""

    path: str
    body: Callable[[int], bytes]
    holds: bytes


def kind_of(name: str) -> Kind:
    """The request of a contestant."""
    names = Sessions(SESSIONS, "h").names(PER_SESSION)

    def trigger(n: int) -> bytes:
        call = {"tool": TOOL, "arguments": {"n": n, "note": "a few words for the tool"}}
        body = {"session_id": next(names), "agent": "ops", "user": "dana", "delivery_id": f"d{n}", "calls": [call]}
        return json.dumps(body).encode()

    def mutate(n: int) -> bytes:
        return json.dumps({"n": n, "note": "a few words for the tool"}).encode()

    return {
        "own": Kind("/api/trigger?wait=30", trigger, b'"status":"completed"'),
        "floor": Kind("/floor", trigger, b'"ok"'),
        "restate": Kind("/bench/mutate", mutate, b'"n"'),
    }[name]


class Client:
    """One kept-alive connection."""

    def __init__(self, port: int, kind: Kind) -> None:
        self._port = port
        self._kind = kind
        self._head = (
            f"POST {kind.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {AGENT}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )
        self._out: asyncio.StreamWriter | None = None

    async def post(self, n: int) -> None:
        """One request, and its whole answer."""
        if self._out is None:
            self._in, self._out = await asyncio.open_connection("127.0.0.1", self._port)
        body = self._kind.body(n)
        self._out.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        head = await self._in.readuntil(b"\r\n\r\n")
        answer = await self._body(head.lower())
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")) or self._kind.holds not in answer:
            raise AssertionError(f"answered {head[:20]!r} {answer[:200]!r}")

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            parts = []
            while size := int(await self._in.readline(), 16):
                parts.append(await self._in.readexactly(size + 2))
            await self._in.readline()
            return b"".join(parts)
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        return await self._in.readexactly(length)


async def main(port: int, name: str) -> None:
    """Serves until told to end."""
    kind = kind_of(name)
    free: asyncio.LifoQueue[Client] = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        free.put_nowait(Client(port, kind))

    async def one(n: int) -> None:
        client = free.get_nowait()
        await client.post(n)
        free.put_nowait(client)

    await serve_async(one)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
