"""Front doors with different tombstone keys on one store: only the first one's key is admitted with (C-84)."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.admission import tombstone_member
from tests.support.casework import untouched
from tests.support.service import AUTO, Bench, plan


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


@pytest.mark.proves("C-84")
def test_a_front_door_with_another_key_admits_and_erases_nothing(make_bench: Callable[..., Bench]) -> None:
    one = make_bench()
    other = make_bench(retention={"tombstone_key": "another key than that of the file"})
    one.trigger((AUTO, {"n": 1}), delivery_id="d1")
    for _ in range(2):
        with untouched(other):
            reply = other.post("/api/trigger", plan((AUTO, {"n": 2}), delivery_id="d2"))
        assert _code(reply) == (503, "tombstone_key_changed")
        assert "retention.tombstone_key" in reply.get_json()["detail"]
        assert int(reply.headers["Retry-After"]) > 0
    assert _code(other.erase("s1")) == _code(other.get("/readyz")) == (503, "tombstone_key_changed")
    assert one.get("/readyz").status_code == 200
    assert one.trigger((AUTO, {"n": 2}), delivery_id="d2")["status"] == "queued"


@pytest.mark.proves("C-84")
def test_a_tombstone_names_nobody(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    bench.erase("s1")
    shard = run["run_id"][:2]
    (tombstones,) = bench.door.store.command([["ZRANGE", f"ml:{{{shard}}}:retired", 0, -1]])
    identity = bytes.fromhex(run["delivery"])
    guesses = [identity, *(hashlib.new(name, identity).digest() for name in ("md5", "sha1", "sha256", "sha512"))]
    assert len(tombstones) == 1
    assert len(tombstones[0]) == 16
    assert all(tombstones[0] not in guess for guess in guesses)
    assert tombstones[0] == tombstone_member(identity, bench.door.limits.tombstone_key)


@pytest.mark.proves("C-84")
def test_serve_says_so_at_its_start(bench: Bench, store_url: str, tmp_path: Path) -> None:
    bench.trigger((AUTO, {"n": 1}))
    command = [sys.executable, "-m", "ledger.cli", "serve", "--redis-url", store_url]
    ran = subprocess.run(
        [*command, "--data", str(tmp_path / "elsewhere")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert "another tombstone key" in ran.stderr
