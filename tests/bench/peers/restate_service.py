"""The Restate service: one durable step a call. `restate_service.py PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import hypercorn.asyncio
import hypercorn.config
import restate

bench = restate.Service("bench")


@bench.handler()
async def mutate(ctx: restate.Context, request: dict[str, Any]) -> dict[str, Any]:
    """One mutation."""
    found: dict[str, Any] = await ctx.run_typed("effect", lambda: {"n": request["n"]})
    return found


def main(port: int) -> None:
    """Serves until killed."""
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    app: Any = restate.app(services=[bench])
    print("service ready", flush=True)
    asyncio.run(hypercorn.asyncio.serve(app, config))


if __name__ == "__main__":
    main(int(sys.argv[1]))
