"""For tests of files, documents, values and requests: the store contract shows that both loops reach them alike.

A test in such a module that cancels, or runs tasks side by side, has the mark `both_loops`.
"""

from __future__ import annotations

import pytest

__all__ = ["anyio_backend", "both_loops"]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of async tests in a module that imports this."""
    return "asyncio"
