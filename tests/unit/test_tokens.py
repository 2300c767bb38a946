"""Tokens: who they belong to, and that only digests are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

import pytest

from ledger.config import Config, Role, TokenConfig
from ledger.errors import ConfigError
from ledger.supervise.first_tokens import make_first_tokens
from ledger.tokens import (
    TOKENS_FILE,
    Principal,
    TokenBook,
    new_token,
    read_entries,
    token_hash,
    write_entries,
)


def entry(token: str, name: str = "ops-agent", **more: object) -> TokenConfig:
    """A token's configuration entry."""
    values = {
        "name": name,
        "sha256": token_hash(token),
        "tenant": "acme",
        "roles": ["trigger", "read"],
        **more,
    }
    return TokenConfig.model_validate(values)


def test_a_token_leads_to_its_principal() -> None:
    book = TokenBook([entry("one", "a"), entry("two", "b", agents=["ops", "web"], act_for_users=True)])
    roles = frozenset({Role.TRIGGER, Role.READ})
    assert book.authenticate("one") == Principal("a", "acme", roles, None, act_for_users=False)
    assert book.authenticate("two") == Principal("b", "acme", roles, ("ops", "web"), act_for_users=True)
    assert len(book) == 2


@pytest.mark.parametrize("token", ["", "three", "on", "one ", "ONE", token_hash("one"), "\udcff", "o\0ne"])
def test_any_other_text_is_nobody(token: str) -> None:
    assert TokenBook([entry("one")]).authenticate(token) is None


def test_an_empty_book_knows_nobody() -> None:
    assert TokenBook([]).authenticate("") is None


def test_roles_are_asked_by_name() -> None:
    principal = TokenBook([entry("one", roles=["approve"])]).authenticate("one")
    assert principal is not None
    assert principal.may(Role.APPROVE)
    assert not principal.may(Role.ERASE)


def test_every_entry_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    real = hmac.compare_digest

    def counting(known: str, given: str) -> bool:
        compared.append(known)
        return real(known, given)

    book = TokenBook([entry(f"token-{n}") for n in range(4)])
    monkeypatch.setattr("ledger.tokens.hmac.compare_digest", counting)
    for token in ("token-0", "token-3", "unknown"):
        compared.clear()
        book.authenticate(token)
        assert len(compared) == 4


def test_fresh_tokens_are_long_and_distinct() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"mlt_[A-Za-z0-9_-]{43}", token) for token in tokens)


def test_the_digest_is_plain_sha256() -> None:
    assert token_hash("abc") == hashlib.sha256(b"abc").hexdigest()


def test_entries_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / TOKENS_FILE
    entries = [entry("one", "a@b/c:d", agents=["x", "y"]), entry("two", act_for_users=True, roles=list(Role))]
    write_entries(path, entries)
    assert read_entries(path) == entries
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in tmp_path.iterdir()] == [TOKENS_FILE]


def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / TOKENS_FILE
    for content in (b"[[tokens", b"\xff", b"tokens = 3", b"tokens = [3]", b'[[tokens]]\nname = "x"'):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"is damaged; move it away"):
            read_entries(path)
    assert read_entries(tmp_path / "absent.toml") == []


def test_the_book_holds_configured_and_made_tokens(tmp_path: Path) -> None:
    write_entries(tmp_path / TOKENS_FILE, [entry("made", "made")])
    book = TokenBook.load(Config(tokens=[entry("given", "given")]), tmp_path)
    assert [getattr(book.authenticate(token), "name", None) for token in ("given", "made")] == [
        "given",
        "made",
    ]
    assert TokenBook.load(Config(), None).authenticate("made") is None


@pytest.mark.proves("C-42")
def test_first_tokens_keep_triggering_and_approving_apart(tmp_path: Path) -> None:
    tokens = make_first_tokens(Config(), tmp_path)
    book = TokenBook.load(Config(), tmp_path)
    roles = {name: getattr(book.authenticate(token), "roles", None) for name, token in tokens.items()}
    assert roles == {
        "agent": {Role.TRIGGER, Role.READ, Role.HOST, Role.OPS},
        "approver": {Role.APPROVE, Role.READ},
        "admin": {Role.ERASE, Role.OPS, Role.READ},
    }
    assert not any(token in (tmp_path / TOKENS_FILE).read_text() for token in tokens.values())


def test_first_tokens_are_made_once_and_never_beside_configured_ones(tmp_path: Path) -> None:
    assert make_first_tokens(Config(tokens=[entry("given")]), tmp_path) == {}
    assert not (tmp_path / TOKENS_FILE).exists()
    assert make_first_tokens(Config(), tmp_path)
    before = (tmp_path / TOKENS_FILE).read_text()
    assert make_first_tokens(Config(), tmp_path) == {}
    assert (tmp_path / TOKENS_FILE).read_text() == before
