"""Running tools: MCP servers and native handlers behind one router. Start reading at `router`."""

from __future__ import annotations

from workers.tools.native import NativeTools, ToolContext, ToolExecutionResult, get_tool_route_context
from workers.tools.results import CallContext, IncomingMessage, MCPExecutionTimeout, ToolReply, Verdict
from workers.tools.router import ToolRouter

__all__ = [
    "CallContext",
    "IncomingMessage",
    "MCPExecutionTimeout",
    "NativeTools",
    "ToolContext",
    "ToolExecutionResult",
    "ToolReply",
    "ToolRouter",
    "Verdict",
    "get_tool_route_context",
]
