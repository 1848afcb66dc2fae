"""How the golden spools were written: by the spool of the release itself, as `write_release.py` explains::

    cd "$(mktemp -d)" && PYTHONPATH=<its source> python <here>/write_spools.py <here>/spools/<version>

They are the states that a killed ``asnap run`` rarely leaves: a snapshot has three of five records, and the file
says so in place, was replaced by a shorter one, or was about to be.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from snapshot_plugin import FilesystemStore
from snapshot_plugin.codec.sources import KeyFile
from snapshot_plugin.testing import make_message, make_snapshot

try:
    from snapshot_plugin.live.spool import Spool
except ImportError:  # 0.1.0
    from snapshot_plugin.manager.spool import Spool  # type: ignore[import-not-found, no-redef]

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.golden.write_release import KEY


def message(number: int) -> dict[str, Any]:
    return {"message": {"role": "user", "content": f"word {number}"}}


def write(store: FilesystemStore, name: str, *, flush: bool = False, killed: bool = False) -> None:
    snapshot = make_snapshot("word 1", session_id=name)
    for number in (2, 3):
        snapshot = snapshot.append(make_message(f"word {number}"))
    asyncio.run(store.save(snapshot.evolve(metadata={"spool": {"upto": 3}})))
    spool = Spool.open(store.session_dir(name), session_id=name, keys=store.session_keys(name))
    for number in range(1, 6):
        spool.append(message(number))
    if flush:
        spool.flush()
    child = os.fork() if killed else 0
    if killed and child:
        os.waitpid(child, 0)
        return
    if killed:
        Path.rename = lambda *_: os._exit(0)  # type: ignore[method-assign]
        spool = Spool.open(store.session_dir(name), session_id=name, keys=store.session_keys(name))
        spool.truncate(3)
        os._exit(1)
    spool.truncate(3)


def main(target: Path) -> None:
    target.mkdir(parents=True)
    key = target / "key.txt"
    key.write_text(KEY + "\n", "utf-8")
    key.chmod(0o600)
    for kind in ("plain", "encrypted"):
        store = FilesystemStore(target / kind, key=KeyFile(key) if kind == "encrypted" else None, background=False)
        write(store, "in-place")
        write(store, "replaced", flush=True)
        write(store, "about-to-be-replaced", flush=True, killed=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
