"""Which test proves which contract rule, read off the test files without importing them.

Reading the text works the same under xdist, with a file selected or with none, and cannot be fooled by a run that
skipped something: a test that is marked to be skipped or to fail proves nothing.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_PROVES_NOTHING = frozenset({"skip", "skipif", "xfail"})


class ProofError(Exception):
    """A mark whose rules cannot be read: they must be written out as strings."""


def proofs(files: Iterable[Path]) -> Mapping[str, list[str]]:
    """Rule -> tests that prove it, as `<file name>::<test>`.

    Raises:
        ProofError: a `proves` mark with anything but string literals.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(files):
        for test, rules in _tests(ast.parse(path.read_text(encoding="utf-8"))):
            for rule in rules:
                found[rule].append(f"{path.name}::{test}")
    return found


def _tests(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    inherited = [mark for statement in tree.body for mark in _pytestmark(statement)]
    for statement in tree.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _function(statement, inherited, "")
            case ast.ClassDef(name=name) if name.startswith("Test"):
                marks = [*inherited, *map(_mark, statement.decorator_list)]
                marks += [mark for inner in statement.body for mark in _pytestmark(inner)]
                for inner in statement.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield from _function(inner, marks, f"{name}::")


Mark = tuple[str, list[ast.expr]]


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, inherited: list[Mark], prefix: str
) -> Iterator[tuple[str, list[str]]]:
    marks = [*inherited, *map(_mark, node.decorator_list)]
    if node.name.startswith("test") and not any(name in _PROVES_NOTHING for name, _ in marks):
        yield prefix + node.name, [rule for name, given in marks if name == "proves" for rule in _rules(given)]


def _pytestmark(statement: ast.stmt) -> list[Mark]:
    match statement:
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=ast.List(elts=marks)):
            return [_mark(mark) for mark in marks]
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=mark):
            return [_mark(mark)]
        case _:
            return []


def _mark(node: ast.expr) -> Mark:
    """Name and arguments of `pytest.mark.<name>(...)`; another decorator is a mark without a name."""
    match node:
        case ast.Call(func=func, args=given):
            return _mark(func)[0], given
        case ast.Attribute(value=ast.Attribute(attr="mark") | ast.Name(id="mark"), attr=name):
            return name, []
        case _:
            return "", []


def _rules(given: list[ast.expr]) -> list[str]:
    rules = [node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if len(rules) != len(given) or not rules:
        raise ProofError("proves takes rules as strings, at least one")
    return rules
