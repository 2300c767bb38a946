"""The configuration file `mutation-ledger.toml`: its sections as frozen models, and how it is read."""

from __future__ import annotations

from ledger.config.load import DEFAULT_FILE, Config, load, resolve_secret, with_secrets
from ledger.config.sections import (
    BudgetConfig,
    Durability,
    PluginsConfig,
    ReadbacksConfig,
    RedisConfig,
    RetentionConfig,
    Role,
    ServiceConfig,
    TimingConfig,
    TokenConfig,
    WorkersConfig,
)
from ledger.config.tools import (
    AutoApproveRule,
    HumanLevel,
    McpConfig,
    McpServerConfig,
    PolicyConfig,
    ToolPolicy,
)

__all__ = [
    "DEFAULT_FILE",
    "AutoApproveRule",
    "BudgetConfig",
    "Config",
    "Durability",
    "HumanLevel",
    "McpConfig",
    "McpServerConfig",
    "PluginsConfig",
    "PolicyConfig",
    "ReadbacksConfig",
    "RedisConfig",
    "RetentionConfig",
    "Role",
    "ServiceConfig",
    "TimingConfig",
    "TokenConfig",
    "ToolPolicy",
    "WorkersConfig",
    "load",
    "resolve_secret",
    "with_secrets",
]
