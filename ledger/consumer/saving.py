"""Places for cursors: a file, a key in Redis or Valkey, or whatever two functions reach."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import redis

from ledger.consumer.cursors import Cursors
from ledger.errors import ConfigError, StoreUnavailable
from ledger.store.dialing import redis_of_key

SECONDS = 5.0


class FileCursorStore:
    """A small JSON file, replaced as a whole and fsynced before `save` returns. One consumer a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Cursors | None:
        """Raises ConfigError if the file cannot be read or is damaged."""
        try:
            return Cursors.from_json(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            if isinstance(error, ConfigError) and error.code == "format_too_new":
                raise
            reason = error.strerror if isinstance(error, OSError) else "damaged: move it away and resynchronise"
            raise ConfigError(f"the cursor file {self.path} cannot be used: {reason}") from None

    def save(self, cursors: Cursors) -> None:
        """Raises ConfigError if the file cannot be written."""
        scratch = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            self._write(scratch, cursors.to_json() + "\n")
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise ConfigError(f"the cursor file {self.path} cannot be written: {error.strerror}") from None

    def _write(self, scratch: Path, text: str) -> None:
        with scratch.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.path)
        # The rename itself is only safe once the directory is on disk.
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class RedisCursorStore:
    """A string key `ml-consumer:<name>`.

    In the ledger's own store the cursor dies with the streams: an emptied store then looks like a first start, so keep
    it elsewhere if that must be noticed.
    """

    def __init__(self, url: str, name: str) -> None:
        self.key = f"ml-consumer:{name}"
        self._url = url
        self._client: redis.Redis | None = None

    def load(self) -> Cursors | None:
        """Raises StoreUnavailable, or ConfigError if the key holds something else."""
        try:
            kept = self._opened().get(self.key)
        except redis.RedisError as error:
            self.close()
            raise _unavailable(error, sent=False) from None
        return Cursors.from_json(kept.decode(errors="replace")) if isinstance(kept, bytes) else None

    def save(self, cursors: Cursors) -> None:
        """Raises StoreUnavailable; saving again is harmless."""
        try:
            self._opened().set(self.key, cursors.to_json())
        except redis.RedisError as error:
            self.close()
            raise _unavailable(error, sent=True) from None

    def close(self) -> None:
        """Closes its connection; the next use makes another, to wherever the key is then."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> redis.Redis:
        if self._client is None:
            limits = {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS}
            self._client = redis_of_key(self._url, self.key, **limits)
        return self._client


class CallableCursorStore:
    """Cursors as text through two functions of the caller, for instance a row next to the data they belong to."""

    def __init__(self, load: Callable[[], str | None], save: Callable[[str], object]) -> None:
        self._load = load
        self._save = save

    def load(self) -> Cursors | None:
        """Raises ConfigError if the text is not what was saved, and whatever the function raises."""
        text = self._load()
        return None if text is None else Cursors.from_json(text)

    def save(self, cursors: Cursors) -> None:
        """Raises whatever the function raises."""
        self._save(cursors.to_json())


def _unavailable(error: redis.RedisError, *, sent: bool) -> StoreUnavailable:
    return StoreUnavailable(f"the cursor's store did not answer ({type(error).__name__})", sent=sent)
