"""``asnap ui`` and ``asnap`` beside it, as processes with a home of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["CHROMIUM", "Served", "missing"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""


def missing() -> str | None:
    """What has to be installed first; None if all is there."""
    if not CHROMIUM:
        return "there is no Chromium (apt install chromium)"
    for name in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(name) is None:
            return f"there is no {name} (pip install playwright axe-playwright-python)"
    return None


class Served:
    """A store, and the server that shows it."""

    def __init__(self, place: Path, *words: str) -> None:
        self.place, self._words = place, words
        home = place.parent
        kinds = ("DATA", "CONFIG", "CACHE", "STATE")
        self.environ = {**os.environ, "HOME": str(home)}
        self.environ.update({f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in kinds})

    def __enter__(self) -> Self:
        line = [sys.executable, "-m", "snapshot_plugin", "ui", "--no-open", "--store", str(self.place)]
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen([*line, *self._words], env=self.environ, **streams)
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()
        self.base = self.address.partition("/#")[0]
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)

    def asnap(self, *words: str) -> Any:
        """What a command answers in JSON."""
        line = [sys.executable, "-m", "snapshot_plugin", *words, "--json", "--store", str(self.place)]
        done = subprocess.run(line, capture_output=True, text=True, env=self.environ, check=True, timeout=60)
        return json.loads(done.stdout)
