"""Every protection that the soak takes out is still where the soak takes it from."""

from __future__ import annotations

import subprocess
import sys

_EACH_IN_A_CHILD = """
import multiprocessing
from integration.soak import mutations

children = {
    name: multiprocessing.get_context("fork").Process(target=getattr(mutations, name))
    for name in mutations.__all__
    if name != "Mutation"
}
for child in children.values():
    child.start()
for child in children.values():
    child.join()
print(*sorted(name for name, child in children.items() if child.exitcode))
"""


def test_each_protection_can_be_taken_out() -> None:
    """Only the soak shows that taking it out is noticed; a protection that moved would fail it an hour later."""
    command = [sys.executable, "-c", _EACH_IN_A_CHILD]
    ended = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)

    assert ended.stdout.split() == [], ended.stderr
    assert ended.returncode == 0, ended.stderr
