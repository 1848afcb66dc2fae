"""How many test files import a name that no public module exports: ``python -m integration.imports_of_tests``.

A test that uses public names alone survives every redesign that keeps the promises. The public modules are those of
`integration.reference`. Prints the files with the most such names, and their number.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from integration.reference import PUBLIC_MODULES

ROOT = Path(__file__).parents[1]
_SHOWN = 15


def public_names() -> dict[str, str]:
    """Each public name, and the first public module that exports it; not of extras that are not installed."""
    names: dict[str, str] = {}
    for module in PUBLIC_MODULES:
        try:
            exported = importlib.import_module(module).__all__
        except ImportError:
            continue
        for name in exported:
            names.setdefault(name, module)
    return names


def private_imports(source: str, public: dict[str, str]) -> list[str]:
    """The names of this package that *source* imports and no public module exports."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "snapshot_plugin":
            is_public = node.module in PUBLIC_MODULES
            found += [
                f"{node.module}.{each.name}" for each in node.names if not is_public and each.name not in public
            ]
    return found


def main() -> int:
    public = public_names()
    files = {
        str(file.relative_to(ROOT)): names
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if (names := private_imports(file.read_text("utf-8"), public))
    }
    for file, names in sorted(files.items(), key=lambda item: -len(item[1]))[:_SHOWN]:
        print(f"{len(names):3} {file}")
    print(f"{len(files)} files import {sum(map(len, files.values()))} names that no public module exports")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
