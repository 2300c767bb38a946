"""share_catalogs: who admits knows what workers say that servers list, while they say it (C-64)."""

from __future__ import annotations

import pytest

from ledger.catalogs import GONE_SECONDS, Listing, read_catalogs, share_catalogs
from tests.support.ledger import Ledger, key


def listing(server: str = "boards", tool: str = "create") -> Listing:
    made = Listing.of(server, {tool: {"type": "object"}})
    assert made is not None
    return made


def share(ledger: Ledger, *listings: Listing) -> None:
    missing = ledger.run(share_catalogs(listings))
    if missing:
        assert ledger.run(share_catalogs(listings, missing)) == frozenset()


@pytest.mark.proves("C-64")
def test_a_body_is_asked_for_once(ledger: Ledger) -> None:
    one = listing()
    assert ledger.run(share_catalogs([one])) == {one.digest}
    assert ledger.run(read_catalogs([])) == []
    assert ledger.run(share_catalogs([one], frozenset({one.digest}))) == frozenset()
    assert ledger.run(share_catalogs([one])) == frozenset()
    assert ledger.run(read_catalogs([])) == [(one.server, one.digest, one.body)]
    assert ledger.run(read_catalogs([one.digest])) == [(one.server, one.digest, "")]


@pytest.mark.proves("C-64")
def test_two_servers_may_list_the_same(ledger: Ledger) -> None:
    boards, mail = listing("boards"), listing("mail")
    assert boards.digest == mail.digest
    share(ledger, boards, mail)
    assert {server for server, _, _ in ledger.run(read_catalogs([]))} == {"boards", "mail"}


@pytest.mark.proves("C-64")
@pytest.mark.parametrize("moved_ms", [-GONE_SECONDS * 1000 - 1000, 60_000], ids=["silent", "a clock set back"])
def test_what_is_not_said_again_goes(ledger: Ledger, moved_ms: float) -> None:
    one, other = listing(), listing(tool="drop")
    share(ledger, one)
    ledger.raw.zadd(key("catalogs:listed"), {f"{one.server} {one.digest}": ledger.now() + moved_ms})
    assert ledger.run(read_catalogs([])) == []
    share(ledger, other)
    assert [digest for _, digest, _ in ledger.run(read_catalogs([]))] == [other.digest]
    assert ledger.raw.hkeys(key("catalogs")) == [other.digest.encode()]
