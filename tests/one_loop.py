"""For tests of files, frames and requests: the store contract shows that both event loops reach them alike."""

from __future__ import annotations

import pytest

__all__ = ["anyio_backend"]


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of async tests in a module that imports this."""
    return "asyncio"
