"""The `serve` subcommand."""

from __future__ import annotations

import click

from ledger.cli.options import Settings, common
from ledger.config import Config
from ledger.errors import StoreUnavailable, StoreWentBack
from ledger.logs import configure_logs
from ledger.store import StoreSettings, SyncStore
from ledger.tombstone import load_key, pin_key


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port [service.port, 8321].")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Server processes.")
@common
def serve(settings: Settings, host: str, port: int | None, workers: int) -> None:
    """Serve the HTTP API. SIGTERM ends streams, answers what is under way, and exits."""
    # Imported here: the other subcommands need no server.
    from service.server import Serving, make_server  # noqa: PLC0415

    configure_logs()
    redis = settings.config.redis.model_copy(update={"url": settings.store_url()})
    config = settings.config.model_copy(update={"redis": redis})
    _require_safe_store(config, load_key(config, settings.data_dir))
    serving = Serving(host, port or config.service.port, workers, config.timing.stop_drain_seconds)
    make_server(config, serving, settings.data_dir).run()


def _require_safe_store(config: Config, key: bytes) -> None:
    """Refuses a store that cannot keep the promise; one that is only away is waited for while serving (C-26).

    Raises:
        StoreUnsafe, ConfigError, Refused: one line with the fix.
    """
    store = SyncStore(StoreSettings(config.redis, wait_seconds=config.timing.checkpoint_wait_seconds))
    try:
        store.open()
        store.run(pin_key(key))
    except (StoreUnavailable, StoreWentBack) as error:
        click.echo(f"warning: {error}; serving 503 until it is back", err=True)
    finally:
        store.close()
