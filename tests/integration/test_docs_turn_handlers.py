"""The example of docs/turn-handlers.md is a plugin that works as the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.turns import Turns
from tests.support.valkey import ValkeyProcess

PAGE = Path(__file__).parents[2] / "docs" / "turn-handlers.md"


def test_the_example_runs(tmp_path: Path, valkey: ValkeyProcess) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page_example.py").write_text(code, encoding="utf-8")
    here = f"{tmp_path}:{PAGE.parents[1]}"
    turns = Turns(tmp_path / "turns", valkey.url, modules=("page_example",), env={"PYTHONPATH": here})
    try:
        turns.stack.add_worker()
        run = turns.deliver("d1", handler="onboard", given={"id": "a"})
        turns.decide(turns.asked(run))
        narration = turns.ended(run).narration
        assert narration["paid"] is True
        assert narration["outcome"]["status"] == "completed"
        denied = turns.deliver("d2", handler="onboard", given={"id": "b"})
        turns.decide(turns.asked(denied), "deny")
        assert turns.ended(denied).narration == {"paid": False, "why": "denied"}
        blocking = turns.deliver("d3", handler="remind")
        turns.decide(turns.asked(blocking))
        assert turns.ended(blocking).narration == f"{turns.session}/d3: completed"
    finally:
        turns.close()
