"""The shell blocks of how-to pages about the command line run, as a reader would paste them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forkserver

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["decide-what-is-kept", "find-share-clean-up", "import-from-other-tools"]


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_each_page_run(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "how-to" / f"{name}.md").read_text("utf-8"))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ASNAP_", "XDG_", "COV_"))
    }
    commands = tmp_path_factory.mktemp("commands")
    inherited = forkserver.command_for_shells(commands)
    found = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment |= {"HOME": str(tmp_path), "PATH": found}

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        pass_fds=inherited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert len(blocks) >= 3
    assert done.returncode == 0, done.stderr[-2000:]
