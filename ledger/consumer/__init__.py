"""Following published outcomes: every shard's stream, at least once, in revision order per logical turn (C-111).

    consumer = OutcomeConsumer("redis://127.0.0.1:6379/0", FileCursorStore(Path("outcomes.cursor")))
    try:
        for outcome in consumer:
            upsert(outcome)
    except CursorGap:
        for outcome in consumer.resync():
            upsert(outcome)

`async for` works the same. An outcome counts as processed when the next one is asked for; cursors are saved after each
batch, so a consumer that dies is given its last batch again. Upsert by `mutation_id` and drop what has a lower
`mutation_revision` than is known.
"""

from ledger.consumer.consumer import Feed, OutcomeConsumer
from ledger.consumer.core import Start
from ledger.consumer.cursors import Cursors, CursorStore
from ledger.consumer.errors import CursorGap, GapReason
from ledger.consumer.outcome import Outcome
from ledger.consumer.saving import CallableCursorStore, FileCursorStore, RedisCursorStore

__all__ = [
    "CallableCursorStore",
    "CursorGap",
    "CursorStore",
    "Cursors",
    "Feed",
    "FileCursorStore",
    "GapReason",
    "Outcome",
    "OutcomeConsumer",
    "RedisCursorStore",
    "Start",
]
