"""Nothing leaves the machine: no module of the package can open a connection to another one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "snapshot_plugin"
CLIENTS = {"http.client", "urllib.request", "smtplib", "requests", "httpx", "aiohttp", "urllib3", "websockets"}
CALLS = {"connect_tcp", "create_connection", "open_connection", "urlopen"}


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def called(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.requirement("GASOLINE-P-PRIVACY-LOCAL")
def test_no_module_opens_connections_to_other_machines() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    trees = {name: ast.parse(source) for name, source in modules.items()}

    guilty = {name: (imported(tree) & CLIENTS) | (called(tree) & CALLS) for name, tree in trees.items()}

    assert len(trees) > 100
    assert {name: what for name, what in guilty.items() if what} == {}
