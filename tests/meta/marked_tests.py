"""Finds the tests that carry requirement marks, and what can be seen of them without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["MarkedTest", "Module", "marked_tests"]

ROOT = Path(__file__).parents[2]
_FAILS = ("pytest.raises", "pytest.warns", "pytest.fail", "jsonschema.validate", "anyio.fail_after")
_NEVER_PASSES = ("pytest.mark.skip", "pytest.mark.xfail", "skip", "xfail")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class MarkedTest:
    """A test function with the ids it is marked with, directly or by its class, its module or its parameters."""

    place: str
    ids: tuple[str, ...]
    asserts: bool
    can_pass: bool


class Module:
    """One file of tests."""

    def __init__(self, source: str, place: str = "test_example.py") -> None:
        self.place = place
        self._tree = ast.parse(source)
        self._functions = {node.name: node for node in ast.walk(self._tree) if isinstance(node, Function)}
        self._values = {
            target.id: node.value
            for node in self._tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
            for alias in node.names
        }

    def tests(self) -> Iterator[MarkedTest]:
        of_module = [self._values["pytestmark"]] if "pytestmark" in self._values else []
        for node in self._tree.body:
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    yield from self._test(inner, [*of_module, *node.decorator_list])
            yield from self._test(node, of_module)

    def _test(self, node: ast.stmt, inherited: list[ast.expr]) -> Iterator[MarkedTest]:
        if not isinstance(node, Function) or not node.name.startswith("test"):
            return
        marks = self._resolved([*inherited, *node.decorator_list])
        if ids := tuple(_ids(marks)):
            can_pass = not any(_name(mark) in _NEVER_PASSES for mark in marks)
            yield MarkedTest(f"{self.place}:{node.lineno} {node.name}", ids, self.asserts(node.name), can_pass)

    def _resolved(self, marks: list[ast.expr]) -> list[ast.expr]:
        """*marks*, with each name of a value of this module replaced by that value."""
        named = [node.id for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Name)]
        found = [*marks, *(self._values[name] for name in named if name in self._values)]
        return [inner for mark in found for inner in (mark, *getattr(mark, "elts", ()))]

    def asserts(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """True if the function asserts something itself, or uses a function of the tests that does."""
        if name in seen:
            return False
        if name in self._imported:
            module, original = self._imported[name]
            return _module(module or "").asserts(original)
        if name not in self._functions:
            return False
        return any(self._checks(node, seen | {name}) for node in ast.walk(self._functions[name]))

    def _checks(self, node: ast.AST, seen: frozenset[str]) -> bool:
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and _name(node) in _FAILS):
            return True
        used = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return bool(used) and self.asserts(used, seen)


def _ids(marks: list[ast.expr]) -> Iterator[str]:
    calls = {id(node): node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call)}
    for call in calls.values():
        if _name(call) == "pytest.mark.requirement":
            yield from (str(argument.value) for argument in call.args if isinstance(argument, ast.Constant))


def _name(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


@cache
def _module(name: str) -> Module:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return Module(path.read_text("utf-8") if path.exists() else "", name)


@cache
def marked_tests() -> tuple[MarkedTest, ...]:
    """The marked tests of this project."""
    files = [(file, str(file.relative_to(ROOT))) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    return tuple(test for file, place in files for test in Module(file.read_text("utf-8"), place).tests())
