"""A worker without MCP servers starts without the MCP SDK, which takes half of the time."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
import workers.process
from workers.tools import ToolRouter

async def main():
    router = ToolRouter({})
    await router.start()
    await router.close()

asyncio.run(main())
print(sorted(name for name in sys.modules if name == "mcp" or name.startswith(("mcp.", "mcp_types"))))
"""


def test_no_server_no_sdk() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
