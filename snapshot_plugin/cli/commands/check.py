"""``asnap check``: verify the store down to every byte, explain, and set damage aside on request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.operations import references as refs
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.text import plain, several, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snapshot_plugin.store.base import Finding, SnapshotStore

__all__ = ["Checked", "command"]

_EXPLAINED = {
    "corrupted": "the bytes are not the ones that were written: a failing disk, or an edit by hand",
    "tampered": "well-formed, but not made with this store's key for this place",
    "chain": "it builds on a snapshot that is damaged or missing",
    "version_unsupported": "written by a newer release; upgrade to read it",
    "wrong_key": "encrypted with a key this store does not have",
    "misplaced": "a file of another session or another place: move it out of the store by hand",
    "unreadable": "the disk cannot read it",
    "unfinished": "a save that was cut off before it was acknowledged; harmless",
    "leftover": "a temporary file of a killed process; harmless",
    "quarantine": "kept until you remove it; asnap check --salvage reads it where nothing else is left",
}


class FoundProblem(Part):
    """One problem."""

    session_id: str
    kind: str
    seq: int | None
    file: str | None
    offset: int | None
    detail: str
    explanation: str
    is_damage: bool


class Checked(Document):
    """What was verified, and the problems."""

    kind: ClassVar[str] = "check"
    rows: ClassVar[str] = "findings"
    sessions: int
    snapshots: int
    bytes_read: int
    findings: tuple[FoundProblem, ...]
    repaired: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """5 if acknowledged data is damaged and was not set aside."""
        return 5 if any(found.is_damage for found in self.findings) and not self.repaired else 0


def show_check(answer: Checked, out: Output) -> None:
    """Print what was verified, and the problems."""
    for found in answer.findings:
        where = f"{found.session_id}@{found.seq}" if found.seq else found.session_id
        out.line(f"{found.kind}  {plain(where)}  {plain(found.detail)}", fg="red" if found.is_damage else "yellow")
        out.line(f"    {found.explanation}" + (f" ({plain(found.file)})" if found.file else ""))
    for line in answer.repaired:
        out.line(f"repaired  {plain(line)}", fg="green")
    out.line(
        f"{several(answer.sessions, 'session')}, {several(answer.snapshots, 'snapshot')}, "
        f"{size(answer.bytes_read)} verified: "
        + ("damage found" if any(found.is_damage for found in answer.findings) else "no damage")
    )
    if answer.exit_code:
        repair = out.run("asnap check --repair")
        out.note(f"  next: {repair}   (copies damaged files to quarantine, keeps intact snapshots)")


@declare(
    "check",
    answer=Checked,
    show=show_check,
    examples=(
        ("asnap check", "read and verify everything"),
        ("asnap check fix-auth", "one session"),
        ("asnap check --subset 1/7", "a seventh of the sessions: one each day of the week"),
        ("asnap check --salvage fix-auth", "rebuild a damaged session from its intact parts"),
        ("asnap check --repair", "set damaged files aside and keep every intact snapshot"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("ref", required=False)
@click.option("--subset", metavar="N/T", help="Only the N-th of T parts of the sessions.")
@click.option("--repair", is_flag=True, help="Copy damaged files to quarantine, and rewrite the intact snapshots.")
@click.option(
    "--salvage", is_flag=True, help="Save the intact parts of a damaged session as a new snapshot, gaps marked."
)
@yes_option
async def command(call: Call, *, ref: str | None, subset: str | None, repair: bool, salvage: bool) -> Checked:
    """Verify the store: every checksum, every digest, every chain.

    Nothing is changed unless --repair or --salvage is given, and even then nothing is deleted. --salvage only adds
    a snapshot; --repair does the same if intact snapshots follow the damage, then moves damaged files to
    quarantine.
    """
    part = _part(subset)
    async with call.opened() as store:  # as it is: nothing is recovered first
        aside = await store.quarantined()
        names = [await _named(store, ref, aside)] if ref else await _all(store, part)
        if repair:
            call.confirm("Move damaged files to quarantine and rewrite the affected sessions?")
        reports, salvaged = [], []
        with progress(call.out, "checking", len(names)) as step:
            for name in names:
                step(name)
                if salvage and (saved := await store.salvage(name)):
                    salvaged.append(f"{name}: the intact parts were saved as snapshot {saved.seq}")
                reports.append(await store.check(name, repair=repair))
    shown = [finding for finding in aside if not ref or finding.session_id in names]
    findings = [
        FoundProblem.from_fields(finding, explanation=_EXPLAINED.get(finding.kind, ""))
        for finding in (*(each for report in reports for each in report.findings), *shown)
    ]
    return Checked(
        sessions=len(names),
        snapshots=sum(report.snapshots for report in reports),
        bytes_read=sum(report.bytes_read for report in reports),
        findings=tuple(findings),
        repaired=(*salvaged, *(line for report in reports for line in report.repaired)),
    )


async def _named(store: SnapshotStore, ref: str, aside: Sequence[Finding]) -> str:
    """Return the session of *ref*, also if only quarantine holds anything of it."""
    if ref in {finding.session_id for finding in aside}:
        return ref
    return (await refs.find(store, ref)).session_id


def _part(subset: str | None) -> tuple[int, int]:
    if subset is None:
        return 1, 1
    match = re.fullmatch(r"(\d+)/(\d+)", subset)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(
            f"{subset!r} is not a part: write 1/7 for the first of seven", param_hint="--subset"
        )
    return int(match[1]), int(match[2])


async def _all(store: SnapshotStore, part: tuple[int, int]) -> list[str]:
    names = sorted(meta.session_id for meta in await store.list())
    return names[part[0] - 1 :: part[1]]
