"""agent-ledger on Postgres: one `run` a unit, a connection a coroutine. `agent_ledger_peer.py POSTGRES_URL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from agent_ledger import EffectLedger, EffectLedgerOptions, ToolCall
from agent_ledger.stores.postgres import SCHEMA_SQL, PostgresStore
from protocol import serve_async
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

CONNECTIONS = 64


async def main(url: str) -> None:
    """Serves until told to end."""
    settings = {"row_factory": dict_row}
    async with AsyncConnectionPool(
        url, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False, kwargs=settings
    ) as pool:
        async with pool.connection() as connection:
            await connection.execute(SCHEMA_SQL)
        ledger: Any = EffectLedger(EffectLedgerOptions(store=PostgresStore(pool)))

        async def one(n: int) -> None:
            async def effect(_: object) -> dict[str, int]:
                return {"n": n}

            call = ToolCall(workflow_id=f"w{n % 1000}", tool="noop", args={"n": n, "note": "a few words for the tool"})
            await ledger.run(call, effect)

        await serve_async(one)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
