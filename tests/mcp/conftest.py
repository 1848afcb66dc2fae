"""A fresh project for each test, and servers that are forked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.forked_process import open_process


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place.resolve()


@pytest.fixture(scope="package", autouse=True)
def _forked_servers() -> Iterator[None]:
    """The official client starts ``asnap mcp`` with anyio."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(anyio, "open_process", open_process)
        yield
