"""The demo: `mutation-ledger up` on a scratch directory, and a story played against it by an outsider."""

from ledger.demo.story import play

__all__ = ["play"]
