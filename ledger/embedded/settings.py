"""The embedded server's configuration file: the durable settings of C-20 and where it listens. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.embedded.address import Address

# C-20: the store confirms a write only after its fsync. The rewrite settings: C-84 (erased bytes must not
# outlive a rewrite) and a threshold that load does not reach every few seconds.
DURABLE: dict[str, str] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "aof-use-rdb-preamble": "no",
    "auto-aof-rewrite-min-size": "1gb",
    "maxmemory-policy": "noeviction",
    "save": "",
    "daemonize": "no",
    "logfile": "",
}

# Scripts make and drop many small objects; glibc keeps seven of a size at hand by default, which costs every script
# about a twentieth of its time. Ignored by servers with another allocator.
ALLOCATOR = "glibc.malloc.tcache_count=2000"


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: `given`, with the allocator's setting unless somebody chose another."""
    return {"GLIBC_TUNABLES": ALLOCATOR, **given}


def render(address: Address) -> str:
    """The text of the configuration file for a server that listens on `address` only."""
    settings = dict(DURABLE)
    if address.path is not None:
        settings |= {"port": "0", "unixsocket": str(address.path), "unixsocketperm": "700"}
    else:
        settings |= {"port": str(address.port), "bind": "127.0.0.1", "requirepass": address.password}
    return "".join(f"{name} {quote(value)}\n" for name, value in settings.items())


def quote(value: str) -> str:
    """`value` as the server's parser reads it back, byte for byte."""
    plain = "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"._/-" else f"\\x{byte:02x}"
        for byte in value.encode("utf-8", "surrogateescape")
    )
    return f'"{plain}"'
