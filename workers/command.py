"""The `worker` subcommand."""

from __future__ import annotations

import sys

import click
from setproctitle import setproctitle

from ledger.cli.options import Settings, common
from ledger.logs import configure_logs
from ledger.supervise.process import Child, ProcessChild
from ledger.supervise.supervisor import Supervisor

TITLE = "mutation-ledger worker"


@click.command()
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--concurrency", type=click.IntRange(1, 100_000), help="Sessions at once in a process [workers.concurrency, 256]."
)
@common
def worker(settings: Settings, processes: int, concurrency: int | None) -> int:
    """Execute approved mutations: own sessions, dispatch once, settle. SIGTERM drains."""
    configure_logs()
    if processes > 1:
        return _many(settings, processes, concurrency)
    # Imported here: RQ reads its key prefix at import, and the other subcommands do not need it.
    from workers.process import run_worker  # noqa: PLC0415

    setproctitle(TITLE)
    config = settings.config
    url = settings.store_url()
    workers = config.workers
    if concurrency is not None:
        workers = workers.model_copy(update={"concurrency": concurrency})
    redis = config.redis.model_copy(update={"url": url})
    return run_worker(config.model_copy(update={"redis": redis, "workers": workers}), url)


def _many(settings: Settings, processes: int, concurrency: int | None) -> int:
    """Several processes under one supervisor, each restarted when it dies."""
    command = [
        sys.executable,
        "-m",
        "ledger.cli",
        "worker",
        "--processes",
        "1",
        "--data",
        str(settings.data_dir),
    ]
    if settings.config_file is not None:
        command += ["--config", str(settings.config_file.absolute())]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    # By environment: the URL may hold a password, and command lines are public on a machine.
    env = {"MUTATION_LEDGER__REDIS__URL": settings.store_url()}
    stop = settings.config.timing.stop_drain_seconds + 10
    children: list[Child] = [
        ProcessChild(f"worker {number}", command, env=env, stop_seconds=stop) for number in range(1, processes + 1)
    ]
    setproctitle(f"{TITLE} supervisor")
    Supervisor([children], say=lambda line: click.echo(line, err=True), each_tick=lambda: None).run()
    return 0
