"""Real processes for tests that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import snapshot_plugin
from tests import forkserver

PATIENCE = 60
_ROOT = Path(snapshot_plugin.__file__).parent.parent


@contextmanager
def python(code: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """Run *code* in a process of its own, with pipes to its stdin and stdout; it is gone afterwards."""
    process = forkserver.Popen(
        [sys.executable, "-m", "tests.run_code", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def heard(process: subprocess.Popen[str]) -> str:
    """The next line the process prints; empty when it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Send the process a line."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def output_of(code: str, *args: object) -> list[str]:
    """Everything a process prints that must end well by itself."""
    with python(code, *args) as process:
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        return out.splitlines()
