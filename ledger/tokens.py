"""Who a bearer token belongs to. Only SHA-256 digests of tokens are ever kept."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ledger.config import Config, Role, TokenConfig
from ledger.errors import ConfigError

TOKENS_FILE = "tokens.toml"
# A fixed beginning lets secret scanners recognise a leaked token.
PREFIX = "mlt_"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller behind a token. `agents` None means any agent; `act_for_users` lets it name a user."""

    name: str
    tenant: str
    roles: frozenset[Role]
    agents: tuple[str, ...] | None
    act_for_users: bool

    def may(self, role: Role) -> bool:
        """Whether the token carries `role`."""
        return role in self.roles


class TokenBook:
    """All known tokens; `authenticate` compares with every one of them, in constant time."""

    def __init__(self, entries: Iterable[TokenConfig]) -> None:
        self._known = tuple((entry.sha256, _principal(entry)) for entry in entries)

    @classmethod
    def load(cls, config: Config, data_dir: Path | None = None) -> TokenBook:
        """The tokens of the configuration and those that `up` made in `data_dir/tokens.toml`.

        Raises ConfigError if that file cannot be used.
        """
        made = read_entries(data_dir / TOKENS_FILE) if data_dir is not None else []
        return cls([*config.tokens, *made])

    def __len__(self) -> int:
        return len(self._known)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that any token belongs to, in order."""
        return tuple(sorted({principal.tenant for _, principal in self._known}))

    def names(self, tenant: str, role: Role) -> frozenset[str]:
        """Who in `tenant` has a token that carries `role`."""
        return frozenset(known.name for _, known in self._known if known.tenant == tenant and known.may(role))

    def authenticate(self, token: str) -> Principal | None:
        """The principal of `token`, or None. Time does not depend on which entry matches, or whether."""
        digest = token_hash(token)
        found: Principal | None = None
        for known, principal in self._known:
            if hmac.compare_digest(known, digest):
                found = principal
        return found


def new_token() -> str:
    """A fresh token of 256 random bits, safe in a header and a URL."""
    return PREFIX + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """The hex SHA-256 of `token`, as `[[tokens]] sha256` takes it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_entries(path: Path) -> list[TokenConfig]:
    """The `[[tokens]]` of `path`; empty if there is no such file. Raises ConfigError if it is damaged."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
        return [TokenConfig.model_validate(entry) for entry in data.get("tokens", [])]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError):
        raise ConfigError(f"{path} is damaged; move it away and `up` makes fresh tokens") from None


def write_entries(path: Path, entries: Sequence[TokenConfig]) -> None:
    """Write `[[tokens]]` to `path`, readable by its owner only; the file appears whole or not at all."""
    text = "# Made by `mutation-ledger up`: digests of its first tokens. Remove an entry to revoke a token.\n"
    text += "".join(_toml(entry) for entry in entries)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _principal(entry: TokenConfig) -> Principal:
    agents = None if entry.agents is None else tuple(entry.agents)
    return Principal(entry.name, entry.tenant, frozenset(entry.roles), agents, entry.act_for_users)


def _toml(entry: TokenConfig) -> str:
    # Names, tenants and agents have no character that TOML would need escaped.
    lines = [
        "\n[[tokens]]",
        f'name = "{entry.name}"',
        f'sha256 = "{entry.sha256}"',
        f'tenant = "{entry.tenant}"',
        f"roles = {_strings(entry.roles)}",
        f"act_for_users = {str(entry.act_for_users).lower()}",
    ]
    if entry.agents is not None:
        lines.append(f"agents = {_strings(entry.agents)}")
    return "\n".join(lines) + "\n"


def _strings(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
