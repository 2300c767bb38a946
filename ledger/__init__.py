"""The rules of the mutation ledger: identity, states, durable scripts, outcomes, the reader's side of streams."""

__version__ = "0.1.0"
