"""The cast of the stories: a store, a front door, a worker, and an MCP server that makes dashboards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stack import Stack, dashboards_section, quick_section
from tests.support.valkey import ValkeyProcess


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything running; `create`, `create_slow` and `patch` need a person's yes. Leases are short: 2 s."""
    folder = tmp_path_factory.mktemp("stories")
    valkey = ValkeyProcess(folder / "valkey")
    config = dashboards_section(human="approve") + quick_section(lease=2.0)
    with valkey.serving(), Stack(folder / "stack", valkey.url, config) as stack:
        stack.add_front_door()
        stack.add_worker()
        yield stack
