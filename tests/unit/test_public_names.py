"""What a package says it exports is there, so that `from package import *` works."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import ledger
import service
import workers

ROOTS = (ledger, service, workers)
PACKAGES = sorted(
    name
    for root in ROOTS
    for name in (
        root.__name__,
        *(found.name for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}.") if found.ispkg),
    )
)


def missing(module: ModuleType) -> list[str]:
    """Names in `__all__` that the module does not have."""
    return [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists(package: str) -> None:
    assert missing(importlib.import_module(package)) == []


def test_subpackages_are_looked_at() -> None:
    assert {"ledger.config", "ledger.engine", "service.routes", "workers.tools"} <= set(PACKAGES)
