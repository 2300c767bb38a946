"""Reaching the store from a command: which one, and for which tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ledger.cli.options import Settings
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.store import StoreSettings, SyncStore
from ledger.tokens import TOKENS_FILE, read_entries


def tenant_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a store command with --tenant; it gets `tenant`, which may be None."""
    return click.option("--tenant", help="Whose sessions [the only tenant there is a token for].")(function)


def the_tenant(settings: Settings, given: str | None) -> str:
    """The tenant given, else the only one that the tokens name. Raises UsageError if that is not one."""
    if given is not None:
        return given
    entries = [*settings.config.tokens, *read_entries(settings.data_dir / TOKENS_FILE)]
    tenants = sorted({entry.tenant for entry in entries})
    if len(tenants) == 1:
        return tenants[0]
    known = f"the tokens name {', '.join(tenants)}" if tenants else "no token names a tenant"
    raise click.UsageError(f"give --tenant: {known}", click.get_current_context())


def store_settings(settings: Settings) -> StoreSettings:
    """How to reach the store. Raises ConfigError if there is none."""
    return StoreSettings(settings.config.redis.model_copy(update={"url": settings.store_url()}))


@contextmanager
def opened(settings: Settings) -> Iterator[SyncStore]:
    """The store, verified and agreed on; closed at the end. Raises ConfigError and StoreError, each naming the fix."""
    store = SyncStore(store_settings(settings))
    try:
        with advised(settings):
            store.open()
            yield store
    finally:
        store.close()


@contextmanager
def advised(settings: Settings) -> Iterator[None]:
    """Adds to a store's silence what a person can do about it."""
    try:
        yield
    except Unconfirmed as error:
        raise Unconfirmed(f"{error}; give the same command again") from None
    except StoreUnavailable as error:
        if settings.configured_url() is not None:
            raise StoreUnavailable(f"{error}; start it, or correct redis.url") from None
        raise StoreUnavailable(f"{error}; is `mutation-ledger up --data {settings.data_dir}` running?") from None
