"""What each answer of the misbehaving server proves: the tool, the verdict, whether its content is withheld."""

from __future__ import annotations

from workers.tools import Verdict

COMPLETED, FAILED, UNKNOWN = Verdict.COMPLETED, Verdict.FAILED, Verdict.OUTCOME_UNKNOWN

STDIO_ANSWERS = [
    ("ok", COMPLETED, False),
    ("error_text", COMPLETED, False),
    ("wrong_structured", COMPLETED, False),
    ("no_structured", COMPLETED, False),
    ("null_flag", COMPLETED, False),
    ("nan", COMPLETED, True),
    ("deep", COMPLETED, True),
    ("very_deep", COMPLETED, True),
    ("surrogate", COMPLETED, True),
    ("big_integer", COMPLETED, True),
    ("huge_kept", COMPLETED, True),
    ("noise", COMPLETED, False),
    ("twice", COMPLETED, False),
    ("asks", COMPLETED, False),
    ("flood", COMPLETED, False),
    ("is_error", FAILED, False),
    ("input_required", UNKNOWN, False),
    ("input_required_with_content", UNKNOWN, False),
    ("error_32602", UNKNOWN, False),
    ("error_32603", UNKNOWN, False),
    ("bad_content", UNKNOWN, False),
    ("bad_result", UNKNOWN, False),
    ("bad_flag", UNKNOWN, False),
    ("huge_read", UNKNOWN, False),
    ("invalid_utf8", UNKNOWN, False),
    ("exit", UNKNOWN, False),
]

HTTP_ANSWERS = [
    ("ok", COMPLETED, False),
    ("sse", COMPLETED, False),
    ("sse_resume", COMPLETED, False),
    ("error_text", COMPLETED, False),
    ("wrong_structured", COMPLETED, False),
    ("no_structured", COMPLETED, False),
    ("nan", COMPLETED, True),
    ("deep", COMPLETED, True),
    ("huge_kept", COMPLETED, True),
    ("is_error", FAILED, False),
    ("input_required", UNKNOWN, False),
    ("error_32602", UNKNOWN, False),
    ("error_32603", UNKNOWN, False),
    ("bad_content", UNKNOWN, False),
    ("bad_result", UNKNOWN, False),
    ("very_deep", UNKNOWN, False),
    ("surrogate", UNKNOWN, False),
    ("huge_read", UNKNOWN, False),
    ("gzip", UNKNOWN, False),
    ("drop", UNKNOWN, False),
    ("sse_drop", UNKNOWN, False),
    ("status_202", UNKNOWN, False),
    ("status_307", UNKNOWN, False),
    ("status_404", UNKNOWN, False),
    ("status_410", UNKNOWN, False),
    ("status_500", UNKNOWN, False),
    ("status_502", UNKNOWN, False),
]
