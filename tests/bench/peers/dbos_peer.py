"""DBOS on Postgres: a workflow of one step a unit, in its own process. `dbos_peer.py POSTGRES_URL`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from dbos import DBOS, DBOSConfig
from protocol import serve_threads


@DBOS.step()
def effect(n: int) -> int:
    """The step."""
    return n


@DBOS.workflow()
def mutation(n: int) -> int:
    """The workflow."""
    return effect(n)


def main(url: str) -> None:
    """Serves until told to end."""
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url.replace("postgresql://", "postgresql+psycopg://"),
        "sys_db_pool_size": 64,
        "console_log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()

    def one(n: int) -> None:
        DBOS.start_workflow(mutation, n).get_result()

    serve_threads(one)
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1])
