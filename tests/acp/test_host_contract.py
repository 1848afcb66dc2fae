"""The suite that other authors get for their hosts, against ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from snapshot_plugin.testing.hosts import HostContract


class TestProxy(HostContract):
    def command(self, store: Path, agent: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(store), "--", *agent]
