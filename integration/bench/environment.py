"""The place the benchmark runs in: a virtual environment of its own, with the peers, outside the repository."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["CACHE", "PEERS", "REPOSITORY", "enter"]

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "asnap-bench"
REPOSITORY = Path(__file__).resolve().parents[2]
_STORE = ("openai-agents>=0.2", "isal>=1.6")
PEERS = (*_STORE, "langgraph-checkpoint-sqlite>=3", "google-adk>=1.20", "aiosqlite", "agent-framework-core>=1")


def enter(module: str, arguments: list[str], *, name: str = "venv", packages: tuple[str, ...] = _STORE) -> None:
    """Go on inside the benchmark's own environment; returns only if we are in it already.

    The environment is made on first use, and again when the project's requirements change. The project itself
    is imported from the working tree, so what is measured is always the present source.
    """
    home = CACHE / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    if Path(sys.prefix).resolve() == home.resolve():
        return
    python = home / "bin" / "python"
    _install(home, python, packages)
    os.chdir(REPOSITORY)
    os.execv(python, [str(python), "-m", module, *arguments])


def _install(home: Path, python: Path, packages: tuple[str, ...]) -> None:
    wanted = hashlib.sha256((REPOSITORY / "pyproject.toml").read_bytes() + repr(packages).encode()).hexdigest()
    stamp = home / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing the peers into {home} …", file=sys.stderr)
    venv.create(home, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(REPOSITORY), *packages], check=True)
    stamp.write_text(wanted)
