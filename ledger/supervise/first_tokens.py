"""The tokens that `up` makes on a first start, so that the API can be tried at once."""

from __future__ import annotations

from pathlib import Path

from ledger.config import Config, Role, TokenConfig
from ledger.tokens import TOKENS_FILE, new_token, token_hash, write_entries

FIRST = {
    "agent": (Role.TRIGGER, Role.READ, Role.HOST, Role.OPS),
    "approver": (Role.APPROVE, Role.READ),
    "admin": (Role.ERASE, Role.OPS, Role.READ),
}


def make_first_tokens(config: Config, data_dir: Path) -> dict[str, str]:
    """Fresh tokens by name, or nothing if the configuration or an earlier start has some.

    Their digests are on disk, in `data_dir/tokens.toml` (0600), before the tokens are returned.
    """
    path = data_dir / TOKENS_FILE
    if config.tokens or path.exists():
        return {}
    tokens = {name: new_token() for name in FIRST}
    entries = [
        TokenConfig(name=name, sha256=token_hash(token), roles=list(FIRST[name]), act_for_users=name == "agent")
        for name, token in tokens.items()
    ]
    write_entries(path, entries)
    return tokens
