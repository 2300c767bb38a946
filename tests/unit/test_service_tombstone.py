"""The tombstone key: configured, or one file that every process of a data directory shares."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from ledger.config import Config
from ledger.errors import ConfigError
from ledger.tombstone import KEY_FILE, load_key


@pytest.mark.proves("C-84")
def test_a_key_file_is_made_once_private_and_shared(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    keys: list[bytes] = []
    go = threading.Barrier(8)

    def load() -> None:
        go.wait()
        keys.append(load_key(Config(), directory))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert len(keys[0]) == 64
    assert [path.name for path in directory.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((directory / KEY_FILE).stat().st_mode) == 0o600
    assert load_key(Config(), tmp_path / "elsewhere") != keys[0]


@pytest.mark.proves("C-84")
def test_a_configured_key_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOMBSTONE_KEY", "k" * 32)
    for text in ("env:TOMBSTONE_KEY", "k" * 32):
        config = Config.model_validate({"retention": {"tombstone_key": text}})
        assert load_key(config, tmp_path) == b"k" * 32
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "file", "fix"),
    [("short", None, "at least 16"), (None, b"short\n", "at least 16"), (None, b"\xff" * 40, "not text")],
)
def test_keys_that_cannot_be_used(tmp_path: Path, key: str | None, file: bytes | None, fix: str) -> None:
    if file is not None:
        (tmp_path / KEY_FILE).write_bytes(file)
    config = Config.model_validate({"retention": {"tombstone_key": key}})
    with pytest.raises(ConfigError, match=fix) as raised:
        load_key(config, tmp_path)
    assert "\n" not in str(raised.value)


def test_no_key_and_nowhere_to_keep_one() -> None:
    with pytest.raises(ConfigError, match=r"retention\.tombstone_key"):
        load_key(Config(), None)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"tombstone\.key"):
        load_key(Config(), tmp_path / "file")
