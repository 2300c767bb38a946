"""C42: the job queue may lose what it likes: a delivery that was accepted is done, once, within seconds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

BOUND_SECONDS = 60


class Scene:
    """A front door and a worker; `client` is an operator's or a fault's."""

    def __init__(self, directory: Path, valkey: ValkeyProcess) -> None:
        self.stack = Stack(directory, valkey.url, native_section() + quick_section(linger=1.0))
        self.api: Api = self.stack.add_front_door()
        self.worker = self.stack.add_worker()
        self.client: Any = valkey.client()

    def lose_rq(self) -> None:
        """Every key of RQ is gone: queue, jobs, registries, its worker's registration."""
        keys = list(self.client.scan_iter("{rq}:*", count=1000))
        if keys:
            self.client.delete(*keys)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey")).start()
    made = Scene(tmp_path_factory.mktemp("c42"), server)
    yield made
    made.stack.stop()
    server.stop()


def done_once(scene: Scene, run_id: str, name: str) -> None:
    assert scene.api.ended(run_id, timeout=BOUND_SECONDS)["status"] == "completed"
    assert [effect["id"] for effect in scene.stack.effects()].count(name) == 1


@pytest.mark.proves("C-31")
def test_a_job_that_vanished_before_it_was_started(scene: Scene) -> None:
    scene.worker.send_signal(signal.SIGSTOP)
    run = scene.api.trigger("c42-a", "d1", [("pay", {"id": "vanished"})]).body
    scene.lose_rq()
    scene.worker.send_signal(signal.SIGCONT)
    done_once(scene, run["run_id"], "vanished")


@pytest.mark.proves("C-22", "C-31")
def test_connections_that_end_at_any_moment(scene: Scene) -> None:
    """Between pop and start, and between finish and result: whatever was on its way is asked for again."""
    runs = {}
    for n in range(12):
        name = f"cut-{n}"
        runs[name] = scene.api.trigger(f"c42-b{n}", "d1", [("pay_slowly", {"id": name, "after": 0.05 * n})]).body
        for client in scene.client.client_list():
            if client["name"].startswith("mutation-ledger-worker") or client["name"] == "":
                scene.client.execute_command("CLIENT", "KILL", "ID", client["id"])
    for name, run in runs.items():
        done_once(scene, run["run_id"], name)


@pytest.mark.proves("C-26", "C-31")
def test_no_more_connections_are_to_be_had(scene: Scene) -> None:
    scene.client.ping()
    run = scene.api.trigger("c42-c", "d1", [("pay_slowly", {"id": "full", "after": 0.5})]).body
    wait_until(scene.stack.effects, 20, "the call to begin")
    before = scene.client.config_get("maxclients")["maxclients"]
    scene.client.config_set("maxclients", len(scene.client.client_list()))
    try:
        # Whatever connects anew meanwhile is turned away.
        for client in scene.client.client_list():
            if client["name"].startswith("mutation-ledger-worker"):
                scene.client.execute_command("CLIENT", "KILL", "ID", client["id"])
        scene.lose_rq()
    finally:
        scene.client.config_set("maxclients", before)
    done_once(scene, run["run_id"], "full")


def test_the_api_never_asks_the_queue(scene: Scene) -> None:
    run = scene.api.trigger("c42-d", "d1", [("pay", {"id": "asked"})]).body
    done_once(scene, run["run_id"], "asked")
    scene.lose_rq()
    assert scene.api.run(run["run_id"])["status"] == "completed"
    assert scene.api.outcomes("c42-d")[0]["status"] == "completed"
