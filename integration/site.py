"""Hooks of MkDocs: the order of the sections, and links that leave ``docs/`` (to source files) as plain paths."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_ORDER = ("Home", "Documentation", "Tutorial", "How to", "Reference", "Explanation", "Decisions")
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page, with links into the repository replaced by paths."""
    here = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[2]))
        return link[0] if target.startswith("docs/") else f"`{target}`"

    return _LINK.sub(replaced, markdown)


def on_nav(nav: Any, **_: Any) -> Any:
    """The sections in the order of the index."""
    nav.items.sort(key=lambda item: _ORDER.index(item.title) if item.title in _ORDER else -1)
    return nav
