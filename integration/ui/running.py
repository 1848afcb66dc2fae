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

import pexpect

__all__ = ["CHROMIUM", "Served", "missing"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
_PATIENCE = 60


def missing() -> str | None:
    """What has to be installed first; None if all is there."""
    if not CHROMIUM:
        return "there is no Chromium (apt install chromium)"
    for name in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(name) is None:
            return f"there is no {name} (pip install playwright axe-playwright-python)"
    return None


class Served:
    """A store, and the server that shows it, in a terminal of its own.

    Args:
        place: the store, a directory or a URL.
        home: where the user's files are; the parent of *place* unless given.
        passphrase: what is typed in the terminal when the server asks.
    """

    def __init__(
        self, place: Path | str, *words: str, home: Path | None = None, passphrase: str | None = None
    ) -> None:
        self.place, self._words, self._passphrase = place, words, passphrase
        home = home or Path(place).parent
        kinds = ("DATA", "CONFIG", "CACHE", "STATE")
        self.environ = {**os.environ, "HOME": str(home), "TERM": "dumb"}
        self.environ.update({f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in kinds})

    def __enter__(self) -> Self:
        line = ["-m", "snapshot_plugin", "ui", "--no-open", "--store", str(self.place), *self._words]
        self.process: Any = pexpect.spawn(sys.executable, line, env=self.environ, timeout=_PATIENCE, echo=False)
        if self._passphrase:
            self.process.expect("Passphrase: ")
            self.process.sendline(self._passphrase)
        self.process.expect(r"http://127\.0\.0\.1:\d+/\S*#token=\S+")
        self.address = self.process.match[0].decode()
        self.base = "/".join(self.address.split("/")[:3])
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.process.kill(signal.SIGINT)
        self.process.expect(pexpect.EOF)
        self.process.close()

    def asnap(self, *words: str) -> Any:
        """What a command answers in JSON."""
        line = [sys.executable, "-m", "snapshot_plugin", *words, "--json", "--store", str(self.place)]
        done = subprocess.run(line, capture_output=True, text=True, env=self.environ, check=True, timeout=60)
        return json.loads(done.stdout)
