"""Install the published agents and the MCP inspector: ``python -m integration.agents.install [name …]``.

They are installed by package name into a cache directory outside the repository: ``ASNAP_AGENTS``, or
``~/.cache/asnap-agents``. An agent that is there in the wanted version is left alone. Exits with 1 if something
could not be installed, and says what and why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from integration.agents.catalog import AGENTS, INSPECTOR, NODE, Agent, cache, inspector, node_bin

__all__ = ["install", "main"]

_PATIENCE = 900
"""Seconds for one package."""


def main() -> int:
    """Install what is named on the command line, or everything; returns the exit status."""
    wanted = sys.argv[1:] or [*AGENTS, "inspector"]
    unknown = [name for name in wanted if name not in AGENTS and name != "inspector"]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join([*AGENTS, 'inspector'])}", file=sys.stderr)
        return 2
    cache().mkdir(parents=True, exist_ok=True)
    failed = [name for name in wanted if not _tried(name)]
    if failed:
        print(f"not installed: {', '.join(failed)}; their runs will be left out", file=sys.stderr)
    return 1 if failed else 0


def _tried(name: str) -> bool:
    try:
        _install_inspector() if name == "inspector" else install(AGENTS[name])
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"{name}: {problem}", file=sys.stderr)
        return False
    return True


def install(agent: Agent) -> None:
    """Put *agent* into the cache, unless the wanted version is there."""
    by = _by_npm if agent.kind == "npm" else _by_pip
    _install(f"{agent.name} {agent.version}", agent.home, agent.packages, lambda: by(agent))
    if not agent.is_installed:
        raise FileNotFoundError(f"its packages were installed, but there is no {agent.start[0]}")


def _install_inspector() -> None:
    home = inspector().parents[2]
    _install("inspector", home, (INSPECTOR,), lambda: _npm(home, (INSPECTOR,), os.environ["PATH"]))


def _install(title: str, home: Path, packages: tuple[str, ...], do: Callable[[], None]) -> None:
    """Run *do* unless the stamp in *home* names these packages; write the stamp when it is done."""
    stamp, wanted = home / "installed", " ".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        print(f"{title}: already there")
        return
    print(f"{title}: installing …", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    do()
    stamp.write_text(wanted)


def _by_npm(agent: Agent) -> None:
    path = os.environ["PATH"]
    if agent.needs_node:
        node = node_bin().parents[1]
        _install(NODE, node, (NODE,), lambda: _npm(node, (NODE,), path))
        path = f"{node_bin()}{os.pathsep}{path}"  # also while installing: npm chooses by the Node it runs on
    _npm(agent.home, agent.packages, path)


def _npm(place: Path, packages: tuple[str, ...], path: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error"]
    _run(["npm", "install", "--prefix", str(place), *options, *packages], PATH=path)


def _by_pip(agent: Agent) -> None:
    venv.create(agent.home, with_pip=True, clear=True, symlinks=True)
    _run([str(agent.home / "bin" / "python"), "-m", "pip", "install", "--quiet", *agent.packages])


def _run(command: list[str], **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment}, cwd=cache(), timeout=_PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
