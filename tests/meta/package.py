"""What can be seen of the package's modules without importing them; each is parsed once for all tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Facts", "facts", "facts_of"]

ROOT = Path(__file__).parents[2]


class Facts(NamedTuple):
    """One module."""

    docstring: str
    classes: tuple[str, ...]
    imports: frozenset[str]
    attributes: frozenset[str]
    """Every name that follows a dot."""


@cache
def facts() -> dict[str, Facts]:
    """All modules of the package, by their paths below the project's directory."""
    files = sorted((ROOT / "snapshot_plugin").rglob("*.py"))
    return {str(file.relative_to(ROOT)): facts_of(file.read_text("utf-8")) for file in files}


def facts_of(source: str) -> Facts:
    tree = ast.parse(source)
    classes, imports, attributes = [], set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return Facts(ast.get_docstring(tree) or "", tuple(classes), frozenset(imports), frozenset(attributes))
