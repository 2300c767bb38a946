"""A host `Engine` in this process beside a real worker process, on one store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ledger.config import load
from ledger.engine import Adapter, Engine, HumanDecision, HumanRequest, IncomingMessage
from ledger.records import Event
from tests.support.stack import Stack, quick_section

MODULES = ("tests.support.effect_tools", "tests.support.case_tools", "tests.support.plugins.turns")


class Hosting:
    """A stack with one worker; engines are made with the stack's own configuration."""

    def __init__(
        self,
        directory: Path,
        url: str,
        more: str = "",
        *,
        modules: tuple[str, ...] = MODULES,
        timing: Mapping[str, float] | None = None,
    ) -> None:
        names = ", ".join(f'"{name}"' for name in modules)
        settings: dict[str, Any] = {"lease": 2.0, **(timing or {})}
        settings["lease"] = settings.pop("lease_seconds", settings["lease"])
        config = f"{quick_section(**settings)}\n{more}\n[plugins]\nmodules = [{names}]\n"
        self.stack = Stack(directory, url, config, env={"TURNS_FILE": str(directory / "turns.jsonl")})
        self._url = url
        self._engines = ExitStack()

    def engine(self, **options: Any) -> Engine:
        """A host of tenant `acme`: principal `host`, agent `ops`."""
        config = load(self.stack.config, overrides={"redis": {"url": self._url}})
        named: dict[str, Any] = {"tenant": "acme", "principal": "host", "agent": "ops", **options}
        return self._engines.enter_context(Engine(config, data_dir=self.stack.directory / "data", **named))

    def effects(self) -> list[str]:
        """Ids of all effects that happened, in order."""
        return [line["id"] for line in self.stack.effects()]

    def close(self) -> None:
        """Ends engines and processes."""
        self._engines.close()
        self.stack.stop()


@contextmanager
def hosting(directory: Path, url: str, more: str = "", **options: Any) -> Iterator[Hosting]:
    """A stack with a worker that runs."""
    made = Hosting(directory, url, more, **options)
    try:
        made.stack.add_worker()
        yield made
    finally:
        made.close()


def message(session: str, *calls: tuple[str, dict[str, Any]], **more: Any) -> IncomingMessage:
    """A delivery of dana's."""
    return IncomingMessage(session, user="dana", calls=list(calls) or None, **more)


class Listening(Adapter):
    """Keeps what it is told; decides as `decide` says, if given."""

    def __init__(self, decide: Callable[[HumanRequest], HumanDecision | None] | None = None) -> None:
        self.outcomes: list[tuple[int, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.requests: list[HumanRequest] = []
        self.decisions: list[str] = []
        self._decide = decide

    def on_mutation_outcome(self, outcome: dict[str, Any], *, mutation_revision: int) -> None:
        self.outcomes.append((mutation_revision, outcome))

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def request_human(self, request: HumanRequest) -> HumanDecision | None:
        self.requests.append(request)
        return self._decide(request) if self._decide else None

    def on_decision(self, request: HumanRequest, result: str) -> None:
        self.decisions.append(result)

    @property
    def words(self) -> list[str]:
        """Types of the events, in order."""
        return [event.type for event in self.events]
