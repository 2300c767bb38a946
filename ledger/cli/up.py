"""`up`."""

from __future__ import annotations

import sys

import click

from ledger.cli.options import Settings, common
from ledger.cli.output import note, print_json
from ledger.cli.primaries import open_primaries
from ledger.durability import verify
from ledger.embedded.directory import make_private
from ledger.supervise.first_tokens import FIRST, make_first_tokens
from ledger.supervise.up import Plan, run


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Of the front door [service.port, 8321].")
@click.option("--workers", type=click.IntRange(0, 64), default=2, show_default=True, help="Worker processes.")
@common
def up(settings: Settings, port: int | None, workers: int) -> None:
    """Run everything on this machine: store, front door and workers. Ctrl-C stops it cleanly."""
    config = settings.config
    url = settings.configured_url()
    if url is not None:
        for _, client in open_primaries(url):
            with client:
                verify(client, config.redis)
    make_private(settings.data_dir)
    tokens = make_first_tokens(config, settings.data_dir)
    if tokens:
        _show_tokens(settings, tokens)
    program = [sys.executable, "-m", "ledger.cli"]
    plan = Plan(
        data_dir=settings.data_dir,
        port=port or config.service.port,
        workers=workers,
        serve=[*program, "serve", *_passed_on(settings)],
        worker=[*program, "worker", *_passed_on(settings), "--processes", "1"],
        redis_url=url,
        stop_drain_seconds=config.timing.stop_drain_seconds,
    )
    run(plan, say=note, ready=lambda address: _show_address(settings, address))


def _passed_on(settings: Settings) -> list[str]:
    file = settings.config_file
    config = ["--config", str(file.absolute())] if file is not None else []
    return [*config, "--data", str(settings.data_dir)]


def _show_tokens(settings: Settings, tokens: dict[str, str]) -> None:
    if settings.json:
        print_json({"tokens": tokens})
        return
    click.echo(f"first start: fresh tokens, shown this once (digests in {settings.data_dir / 'tokens.toml'})")
    for name, token in tokens.items():
        click.echo(f"  {name:<9} {token}  {', '.join(FIRST[name])}")


def _show_address(settings: Settings, address: str) -> None:
    if settings.json:
        print_json({"console": address, "data": str(settings.data_dir)})
    else:
        click.echo(f"console: {address}  (data in {settings.data_dir}; Ctrl-C stops)")
    sys.stdout.flush()
