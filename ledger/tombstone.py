"""The key that turns delivery identities into tombstones; the same in every process of a store (C-84)."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from ledger.config import Config, resolve_secret
from ledger.errors import ConfigError
from ledger.store.call import ScriptCall

KEY_FILE = "tombstone.key"
MIN_CHARACTERS = 16


def load_key(config: Config, data_dir: Path | None) -> bytes:
    """The key of `retention.tombstone_key`, else of `data_dir/tombstone.key`, which is made (0600) if absent.

    Raises:
        ConfigError: the key is too short or missing, or the file cannot be used; one line with the fix.
    """
    if config.retention.tombstone_key is not None:
        return _checked(resolve_secret(config.retention.tombstone_key), "retention.tombstone_key")
    if data_dir is None:
        raise ConfigError("set retention.tombstone_key, or give --data for a key file")
    path = data_dir / KEY_FILE
    try:
        return _checked(_read_or_make(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"cannot use {path}: {reason}; set retention.tombstone_key instead") from None


def pin_key(key: bytes) -> ScriptCall[None]:
    """Writes down which key the store has; every process that admits deliveries runs it once, before the first.

    Tombstones of another key would not be recognised, and what they stand for would run again.

    Raises when run, Refused with tombstone_key_changed.
    """
    check = hmac.new(key, b"mutation-ledger tombstone key", hashlib.sha256).hexdigest()[:32]
    return ScriptCall.of("pin_tombstone_key", 0, check, decode=lambda _: None)


def _checked(text: str, where: str) -> bytes:
    if len(text) < MIN_CHARACTERS:
        raise ConfigError(f"{where}: must have at least {MIN_CHARACTERS} characters")
    return text.encode()


def _read_or_make(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Another process may start at the same moment: the first link wins, and both read the same key.
        os.link(scratch, path)
    except FileExistsError:
        pass
    finally:
        scratch.unlink()
    return path.read_text().strip()
