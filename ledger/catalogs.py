"""What MCP servers list, known to whoever admits calls: workers say it, front doors and engines read it (C-64).

Nothing here is a promise: a catalog that no worker has named for a while is forgotten, and then calls are admitted
unchecked, as they are while their server is down.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
import structlog

from ledger.errors import Refused
from ledger.long_integers import read_json
from ledger.store.call import ScriptCall
from ledger.store.codec import pack

log = structlog.get_logger(__name__)

LIST_SECONDS = 5.0
"""How often workers say, and others read, what servers list."""
GONE_SECONDS = 15.0
"""After this much silence a catalog is not known any more."""
MOST_BYTES = 1024 * 1024
PATH_MAX = 200

Catalog = Mapping[str, Any]
"""Input schemas by tool name."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A server's catalog as it is shared: JSON `body`, named by its `digest`."""

    server: str
    digest: str
    body: str

    @classmethod
    def of(cls, server: str, catalog: Catalog) -> Listing | None:
        """None for a catalog whose names alone are larger than 1 MiB; schemas that do not fit are left out."""
        for shared in (catalog, dict.fromkeys(catalog, True)):
            try:
                body = json.dumps(shared, sort_keys=True, separators=(",", ":"))
            except (RecursionError, ValueError):  # a server may nest as deep, and count as far, as it likes
                continue
            if len(body) <= MOST_BYTES:
                return cls(server, hashlib.sha256(body.encode()).hexdigest()[:32], body)
        return None


def share_catalogs(listings: Sequence[Listing], bodies: frozenset[str] = frozenset()) -> ScriptCall[frozenset[str]]:
    """Says what is listed now; answers the digests whose bodies the store lacks, to be sent with a second call."""
    rows = [[one.server, one.digest, one.body if one.digest in bodies else False] for one in listings]
    request = {"l": rows, "ls": int(GONE_SECONDS * 1000)}

    def decode(reply: list[Any]) -> frozenset[str]:
        return frozenset(digest.decode() for digest in reply[1])

    return ScriptCall.of("share_catalogs", 0, pack(request), decode=decode, told=False)


def read_catalogs(known: Sequence[str]) -> ScriptCall[Sequence[tuple[str, str, str]]]:
    """`(server, digest, body)` of each catalog in use; the body is empty for those of `known` digests."""
    request = {"k": dict.fromkeys(known, True), "ls": int(GONE_SECONDS * 1000)}

    def decode(reply: list[Any]) -> Sequence[tuple[str, str, str]]:
        return [(server.decode(), digest.decode(), body.decode()) for server, digest, body in reply[1]]

    return ScriptCall.of("read_catalogs", 0, pack(request), decode=decode, told=False)


@dataclass(slots=True)
class KnownCatalogs:
    """A process's copy. Workers may differ for a while, so a call passes if it fits what any of them lists."""

    clock: Callable[[], float] = time.monotonic
    _servers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _bodies: dict[str, Catalog] = field(default_factory=dict)
    _checkers: dict[tuple[str, str], jsonschema_rs.Validator | None] = field(default_factory=dict)
    _read_at: float = -GONE_SECONDS

    def request(self) -> ScriptCall[Sequence[tuple[str, str, str]]]:
        """The call whose answer `adopt` takes."""
        return read_catalogs(tuple(self._bodies))

    def adopt(self, found: Sequence[tuple[str, str, str]]) -> None:
        """Takes over what is listed now, and forgets the rest."""
        servers: dict[str, tuple[str, ...]] = {}
        bodies: dict[str, Catalog] = {}
        for server, digest, body in found:
            catalog = self._bodies.get(digest) or (read_json(body) if body else None)
            if catalog:
                bodies[digest] = catalog
                servers[server] = (*servers.get(server, ()), digest)
        self._checkers = {key: made for key, made in self._checkers.items() if key[0] in bodies}
        self._servers, self._bodies, self._read_at = servers, bodies, self.clock()

    def refusal(self, server: str, tool: str, arguments: Mapping[str, Any]) -> Refused | None:
        """Why no worker's server would take this call now; None if one would, or if nobody knows.

        `unknown_tool`; `arguments_invalid`, with the path in the arguments and never a value.
        """
        if self.clock() - self._read_at > GONE_SECONDS:
            return None
        digests = self._servers.get(server, ())
        listing = [digest for digest in digests if tool in self._bodies[digest]]
        if digests and not listing:
            return Refused(f"tool: the server {server} lists no such tool now", code="unknown_tool")
        faults = [self._fault(digest, tool, arguments) for digest in listing]
        return Refused(str(faults[0]), code="arguments_invalid") if faults and all(faults) else None

    def _fault(self, digest: str, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Where and by which keyword the arguments do not fit; None if they do or nobody can tell."""
        checker = self._checker(digest, tool)
        try:
            error = next(checker.iter_errors(arguments), None) if checker is not None else None
        except ValueError:  # numbers larger than the checker takes
            return None
        if error is None:
            return None
        path = ".".join(str(part) for part in error.instance_path)[:PATH_MAX]
        where = f"arguments.{path}" if path else "arguments"
        return f"{where}: does not fit the tool's schema ({error.kind.name})"

    def _checker(self, digest: str, tool: str) -> jsonschema_rs.Validator | None:
        key = (digest, tool)
        if key not in self._checkers:
            try:
                # A server's schema must neither make this process fetch anything nor keep it busy with a pattern.
                self._checkers[key] = jsonschema_rs.validator_for(
                    self._bodies[digest][tool], offline=True, pattern_options=jsonschema_rs.RegexOptions()
                )
            except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
                log.warning("tool_schema_not_usable", tool=tool, error=type(error).__name__)
                self._checkers[key] = None
        return self._checkers[key]
