"""A fresh project for each test."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_plugin.testing import FixedClock
from tests.memory.opening import Opener, opener


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place.resolve()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(datetime.now(UTC))


@pytest.fixture
def open_memory(project: Path, clock: FixedClock) -> Opener:
    return opener(project, clock)
