"""Runs an MCP stdio server and notes every `tools/call` that reaches it; run by path, standard library only.

`python tee_mcp.py LOG HOLD_SECONDS COMMAND...`: each call is a line of JSON in LOG, fsynced before it is handed on;
a call whose arguments hold the text HOLD is handed on only after HOLD_SECONDS, so that a test can kill in between.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import IO


def note(log: str, line: bytes) -> bool:
    """Writes a `tools/call` down; True when it shall be held."""
    message = json.loads(line)
    if message.get("method") != "tools/call":
        return False
    params = message["params"]
    meta = params.get("_meta", {})
    entry = {"tool": params["name"], "mutation_id": meta.get("mutation-ledger/mutation_id"), "at": time.time()}
    with open(log, "ab", buffering=0) as file:
        file.write(json.dumps(entry).encode() + b"\n")
        os.fsync(file.fileno())
    return "HOLD" in json.dumps(params["arguments"])


def forward(server: IO[bytes], log: str, hold: float) -> None:
    """Hands every line of our input to the server."""
    for line in sys.stdin.buffer:
        if note(log, line):
            time.sleep(hold)
        server.write(line)
        server.flush()
    server.close()


def main() -> int:
    """Passes both directions through until either side ends."""
    log, hold, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    server = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert server.stdin is not None
    threading.Thread(target=forward, args=(server.stdin, log, hold), daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
