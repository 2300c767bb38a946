"""Looking unknown outcomes up (C-91): a host registers, for a tool, a function that can say what happened.

It is asked after an outcome was published unknown and the attempt can no longer be running. Only its explicit answer
reconciles, through `reconcile_mutation` like everybody else's. Without a registered readback nothing is ever asked.
"""

from ledger.readbacks.answers import ReadbackAnswer, ReadbackHandler, ReadbackRequest

__all__ = ["ReadbackAnswer", "ReadbackHandler", "ReadbackRequest"]
