"""``asnap migrate``: rewrite files and sessions of older versions in the current one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.errors import Conflict, InvalidInput, SessionLocked
from snapshot_plugin.inert import readable_json
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Migrated", "command"]


class Moved(Part):
    """One file or session: the steps it needs, and where the result is."""

    what: str
    steps: tuple[str, ...]
    written: str | None
    problem: str | None = None
    """Why it was left unchanged, for example because it is live."""


class Migrated(Document):
    """What was old, and the result for each."""

    kind: ClassVar[str] = "migrate"
    rows: ClassVar[str] = "moved"
    current_version: int
    looked_at: int
    moved: tuple[Moved, ...]
    dry_run: bool

    @property
    def exit_code(self) -> int:
        """3 if some were left unchanged."""
        return PARTIAL if any(each.problem for each in self.moved) else 0


def show_migrated(answer: Migrated, out: Output) -> None:
    """Print what was old, and the result for each."""
    for each in answer.moved:
        out.line(plain(each.what) + (f" → {plain(each.written)}" if each.written else ""))
        for step in each.steps:
            out.line(f"    {step}")
    left = [each for each in answer.moved if each.problem]
    for each in left:
        out.note(f"not migrated: {plain(each.problem or '')}")
    would = "would be" if answer.dry_run else "were"
    done = f"{len(answer.moved) - len(left)} {would} upgraded to version {answer.current_version}"
    out.note(f"{answer.looked_at} checked; {done}")


@declare(
    "migrate",
    answer=Migrated,
    show=show_migrated,
    examples=(
        ("asnap migrate --dry-run", "which sessions of the store are of an older version"),
        ("asnap migrate", "save them in the current version; their old snapshots stay"),
        ("asnap migrate old/*.json", "write old/NAME.v2.json beside each; the originals are not touched"),
    ),
    exits=(2, 3, 5, 7, 8, 10),
)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")
async def command(call: Call, *, files: tuple[Path, ...], dry_run: bool) -> Migrated:
    """Rewrite the files of older releases in the current version.

    Reading never needs this: old versions are always upgraded when read. Originals are kept.
    """
    from snapshot_plugin.model.snapshot import CURRENT_VERSION

    if files:
        moved = [each for path in files if (each := _file(path, dry_run=dry_run))]
        looked_at = len(files)
    else:
        async with call.store() as store:
            looked_at, moved = await _sessions(call, store, dry_run=dry_run)
    return Migrated(current_version=CURRENT_VERSION, looked_at=looked_at, moved=tuple(moved), dry_run=dry_run)


def _file(path: Path, *, dry_run: bool) -> Moved | None:
    from snapshot_plugin.exchange.foreign import as_document, shape_of
    from snapshot_plugin.migrate import load_document, plan_migration
    from snapshot_plugin.system.files import replace_file

    found = _read(path)
    raw = as_document(found)
    steps = tuple(f"{step.from_version} → {step.to_version}: {step.description}" for step in plan_migration(raw))
    if raw is not found:
        steps = (f"{shape_of(found)} → 1: read another tool's session", *steps)
    if not steps:
        return None
    snapshot = load_document(raw)
    target = path.with_suffix(f".v{snapshot.version}.json")
    if dry_run:
        return Moved(what=str(path), steps=steps, written=None)
    if target.exists():
        raise InvalidInput(f"{target} exists already", hint="move it away first")
    replace_file(target, readable_json(snapshot.raw() | {"version": snapshot.version}, indent=None).encode())
    if load_document(_read(target)) != snapshot:
        target.unlink()
        raise InvalidInput(f"{path} does not read back as it was written", hint="please report this file's shape")
    return Moved(what=str(path), steps=steps, written=str(target))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{path} is not a JSON document: {error}", hint="asnap import reads other shapes"
        ) from error


async def _sessions(call: Call, store: SnapshotStore, *, dry_run: bool) -> tuple[int, list[Moved]]:
    from snapshot_plugin.model.snapshot import CURRENT_VERSION

    metas = [meta for meta in await store.list() if meta.state == "ok"]
    old = [meta for meta in metas if meta.version < CURRENT_VERSION]
    moved = []
    with progress(call.out, "migrating", len(old)) as step:
        for meta in old:
            step(meta.session_id)
            written = problem = None
            if not dry_run:
                try:
                    written = await _saved_anew(store, meta.session_id)
                except (SessionLocked, Conflict) as error:
                    problem = error.message
            steps = (f"{meta.version} → {CURRENT_VERSION}",)
            moved.append(Moved(what=f"{meta.session_id}@{meta.seq}", steps=steps, written=written, problem=problem))
    return len(metas), moved


async def _saved_anew(store: SnapshotStore, session_id: str) -> str:
    """Save the session in the current version. `SessionLocked` if it is live: its owner saves it so itself."""
    from snapshot_plugin.live.place import held_alone, must_be_recovered
    from snapshot_plugin.manager.ports import utc_now

    async with held_alone(store, session_id, utc_now, to="migrate"):
        await must_be_recovered(store, session_id)
        stored = await store.read(session_id, strict=True)
        ref = await store.save(stored.snapshot, trigger="migrate", tags=("migrated",), base=stored.ref.seq)
    return f"{session_id}@{ref.seq}"
