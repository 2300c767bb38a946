"""What a break is, and all of them. Each makes one line of the code wrong, and names the tests that must notice."""

from __future__ import annotations

from typing import NamedTuple


class Break(NamedTuple):
    """`old` stands exactly once in the file `path`; with `new` in its place every one of `tests` must fail.

    A test is `<file below tests/>::<function>`, or `::<class>::<function>`; of a parametrized one, some case fails.
    """

    rule: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


# The rules that must have a break of their own.
RULES = (
    "C-01", "C-02", "C-03", "C-04",
    "C-10", "C-11", "C-12", "C-13",
    "C-20", "C-21", "C-22", "C-23", "C-24", "C-25", "C-26", "C-27",
    "C-30", "C-31", "C-32", "C-33", "C-34",
    "C-40", "C-41", "C-42", "C-43", "C-44",
    "C-50", "C-51", "C-52", "C-53", "C-55", "C-56",
    "C-60", "C-61", "C-62", "C-63", "C-64",
    "C-70", "C-71",
    "C-80", "C-81", "C-82", "C-83", "C-84",
    "C-90", "C-91", "C-92",
    "C-100", "C-101", "C-102", "C-103",
    "C-110", "C-111", "C-112",
)  # fmt: skip


def all_breaks() -> tuple[Break, ...]:
    """Every break, in the order of the rules."""
    from tests.mutants.code import CODE
    from tests.mutants.retention import RETENTION
    from tests.mutants.scripts import SCRIPTS
    from tests.mutants.stages import STAGES
    from tests.mutants.workers import WORKERS

    return tuple(
        sorted((*SCRIPTS, *RETENTION, *CODE, *WORKERS, *STAGES), key=lambda one: (int(one.rule[2:]), one.path))
    )
