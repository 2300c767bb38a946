"""What the tools of `fake_mcp` answer; standard library only, like the server itself."""

from __future__ import annotations

import json

UNTYPED = {"type": "object"}
TYPED = {"type": "object", "properties": {"title": {"type": "string"}}}
OUTPUT_SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
TEXT = [{"type": "text", "text": "created T-42"}]
KEPT_BYTES = 2 * 1024 * 1024
READ_BYTES = 9 * 1024 * 1024

# What a tool answers: the result object as JSON text, because some of it no JSON library would write.
RESULTS: dict[str, str] = {
    "ok": json.dumps({"content": TEXT}),
    "typed": json.dumps({"content": TEXT}),
    "is_error": json.dumps({"isError": True, "content": [{"type": "text", "text": "card charged, mail failed"}]}),
    "error_text": json.dumps({"content": [{"type": "text", "text": '{"status":"error"}'}]}),
    "input_required": json.dumps({"resultType": "input_required", "requestState": "s"}),
    "input_required_with_content": json.dumps({"resultType": "input_required", "content": TEXT}),
    "wrong_structured": json.dumps({"content": TEXT, "structuredContent": {"id": 7}}),
    "no_structured": json.dumps({"content": TEXT}),
    "null_flag": json.dumps({"content": TEXT, "isError": None}),
    "bad_content": json.dumps({"content": "not-a-list"}),
    "bad_result": json.dumps("created"),
    "bad_flag": json.dumps({"content": TEXT, "isError": "yes"}),
    "nan": '{"content":[],"structuredContent":{"a":NaN}}',
    "deep": '{"content":[],"structuredContent":{"a":' + "[" * 100 + "]" * 100 + "}}",
    "very_deep": '{"content":[],"structuredContent":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}",
    "surrogate": '{"content":[{"type":"text","text":"\\ud800"}]}',
    "big_integer": '{"content":[],"structuredContent":{"a":' + "9" * 6000 + "}}",
    "huge_kept": json.dumps({"content": [{"type": "text", "text": "x" * KEPT_BYTES}]}),
    "huge_read": json.dumps({"content": [{"type": "text", "text": "x" * READ_BYTES}]}),
}
ERRORS = {"error_32602": -32602, "error_32603": -32603}
