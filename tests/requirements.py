"""Every promise that was made: by the five seeds, by the format page, and by our own API.

Each has a stable id. Tests name the ids they prove with ``@pytest.mark.requirement("ID", …)``, and
`tests/meta/test_requirements.py` fails when a promise that is claimed done has no such test, or when a mark sits on
a test that asserts nothing or is always skipped. What is still open is printed at the end of a test run (`report`),
and so is what a run did not prove because the tests were skipped (`tests/proofs.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from tests.requirement_lists.format import FORMAT
from tests.requirement_lists.gasoline import GASOLINE
from tests.requirement_lists.gasoline_product import GASOLINE_PRODUCT
from tests.requirement_lists.manager import MANAGER
from tests.requirement_lists.onering import ONERING
from tests.requirement_lists.orbit import ORBIT
from tests.requirement_lists.requirement import Requirement
from tests.requirement_lists.store import STORE
from tests.requirement_lists.terminal import TERMINAL
from tests.requirement_lists.trust import TRUST

__all__ = ["PREFIXES", "REQUIREMENTS", "Requirement", "report"]

PREFIXES = ("FORMAT", "STORE", "MANAGER", "ORBIT", "ONERING", "TERMINAL", "GASOLINE", "GASOLINE-P", "TRUST")
"""One per source; a longer one wins over a shorter one."""

REQUIREMENTS: tuple[Requirement, ...] = (
    *FORMAT,
    *STORE,
    *MANAGER,
    *ORBIT,
    *ONERING,
    *TERMINAL,
    *GASOLINE,
    *GASOLINE_PRODUCT,
    *TRUST,
)


def report(requirements: Iterable[Requirement], *, width: int = 116) -> list[str]:
    """How many promises are done; each one that is open, with what is missing; and those kept in another way."""
    listed = list(requirements)
    waiting = [f"{each.id}: {each.why}" for each in listed if each.status == "open"]
    other = [each.id for each in listed if each.status == "differs"]
    lines = [f"requirements: {len(listed) - len(waiting) - len(other)} done, {len(waiting)} open", *waiting]
    if other:
        lines.append(f"kept in another way (docs/explanation/seeds.md): {' '.join(other)}")
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]


def prefix_of(requirement_id: str) -> str | None:
    """The source an id belongs to; None if it names none."""
    fitting = [prefix for prefix in PREFIXES if requirement_id.startswith(f"{prefix}-")]
    return max(fitting, key=len, default=None)
