"""Runs the Python code of a how-to page, as a reader would paste it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "run_page"]

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(name: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the blocks of ``docs/how-to/frameworks/<name>.md`` in order in one namespace."""
    page = ROOT / "docs/how-to/frameworks" / f"{name}.md"
    text = page.read_text("utf-8")
    namespace = {"__name__": name} if namespace is None else namespace
    for block in _BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)
    return namespace
