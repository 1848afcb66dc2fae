"""Install every agent that takes part, and the MCP inspector: ``python -m integration.agents.install [name …]``."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from integration.agents.catalog import AGENTS, INSPECTOR, NODE, Agent, cache, inspector, node_bin

__all__ = ["install"]


def install(agent: Agent) -> None:
    """Put *agent* into the cache, unless the wanted version is there."""
    stamp = agent.home / "installed"
    wanted = " ".join(agent.packages)
    if agent.is_installed and stamp.exists() and stamp.read_text() == wanted:
        print(f"{agent.name} {agent.version}: already there")
        return
    print(f"{agent.name} {agent.version}: installing …", flush=True)
    if agent.kind == "npm":
        _by_npm(agent.home, agent.packages, with_node=agent.needs_node)
    else:
        venv.create(agent.home, with_pip=True, clear=True, symlinks=True)
        _run([str(agent.home / "bin" / "python"), "-m", "pip", "install", "--quiet", *agent.packages])
    stamp.write_text(wanted)


def _by_npm(place: Path, packages: tuple[str, ...], *, with_node: bool) -> None:
    place.mkdir(parents=True, exist_ok=True)
    if with_node and not (node_bin() / "node").exists():
        _by_npm(node_bin().parents[1], (NODE,), with_node=False)
    path = f"{node_bin()}{os.pathsep}{os.environ['PATH']}" if with_node else os.environ["PATH"]
    command = ["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", "--loglevel", "error"]
    _run([*command, *packages], PATH=path)


def _run(command: list[str], **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment}, cwd=cache())


def main() -> None:
    cache().mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or (*AGENTS, "inspector"):
        if name == "inspector":
            _by_npm(inspector().parents[2], (INSPECTOR,), with_node=False)
        else:
            install(AGENTS[name])


if __name__ == "__main__":
    main()
