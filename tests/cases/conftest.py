"""Fixtures of the case tests: a front door in this process, real front doors, and a whole stack with a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.case_servers import CaseServers
from tests.support.casework import CaseStack
from tests.support.service import bench, make_bench, serve
from tests.support.valkey import ValkeyProcess

__all__ = ["bench", "make_bench", "serve"]


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseStack]:
    """One front door and one worker with the tools of `case_tools`, for all tests of this process.

    Tests share it, so each names a session of its own.
    """
    server = ValkeyProcess(tmp_path_factory.mktemp("case-valkey")).start()
    stack = CaseStack(tmp_path_factory.mktemp("case-stack"), server)
    yield stack
    stack.stop()
    server.stop()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseServers]:
    """A front door, a worker and misbehaving MCP servers, for all tests of this process.

    Tests share it, so each names a session of its own.
    """
    server = ValkeyProcess(tmp_path_factory.mktemp("servers-valkey")).start()
    made = CaseServers(tmp_path_factory.mktemp("servers"), server)
    yield made
    made.stop()
    server.stop()
