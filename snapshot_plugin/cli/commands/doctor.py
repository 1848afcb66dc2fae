"""``asnap doctor``: check everything that could be wrong, and name the most useful next command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.diagnosis import (
    Observation,
    look_at_agents,
    look_at_leftovers,
    look_at_machine,
    look_at_place,
    look_at_quarantine,
    look_at_sessions,
    look_at_unrecorded,
)
from snapshot_plugin.cli.output import Output
from snapshot_plugin.errors import InvalidInput, SnapshotError, StoreUnavailable
from snapshot_plugin.operations.document import Document
from snapshot_plugin.operations.failures import hint_of, next_command
from snapshot_plugin.operations.text import plain

__all__ = ["Diagnosis", "command"]

_SIGN = {"ok": ("✓", "green"), "hint": ("·", "blue"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
_WORST_FIRST = ("problem", "warning", "hint", "ok")


class Diagnosis(Document):
    """Everything that was checked, and the most useful next command."""

    kind: ClassVar[str] = "doctor"
    rows: ClassVar[str] = "findings"
    findings: tuple[Observation, ...]
    next: str

    @property
    def exit_code(self) -> int:
        """1 if there is a problem; warnings are not failures."""
        return 1 if any(finding.level == "problem" for finding in self.findings) else 0


def show_diagnosis(answer: Diagnosis, out: Output) -> None:
    """Print everything that was checked, and the most useful next command."""
    for finding in answer.findings:
        sign, colour = _SIGN[finding.level]
        out.line(f"{out.style(sign, fg=colour)} {finding.area}: {plain(finding.what)}")
    out.line(f"\nnext: {answer.next}")


@declare(
    "doctor",
    answer=Diagnosis,
    show=show_diagnosis,
    examples=(
        ("asnap doctor", "store, keys, agents, space, clock, leftovers; ends with what to do"),
        ("asnap doctor --json", "the same for a monitor; exit code 1 on a problem"),
        ("asnap doctor --store /backup/sessions", "look at a copy"),
        ("asnap doctor --store s3://my-bucket/agents", "look at a bucket or a database"),
    ),
    exits=(),
)
async def command(call: Call) -> Diagnosis:
    """Check this installation for everything that could be wrong.

    Changes nothing; in a bucket, an empty object is made and removed to see whether the service can keep writers
    apart. Ends with the one command that helps most.
    """
    try:
        findings = [
            *look_at_machine(call),
            *await _look_at_store(call),
            *look_at_agents(call),
            *look_at_unrecorded(call),
        ]
    except InvalidInput as error:  # without settings nothing else can be checked
        findings = [_problem("settings", error, run="asnap help environment")]
    return Diagnosis(findings=tuple(findings), next=_next(call, findings))


async def _look_at_store(call: Call) -> list[Observation]:
    from snapshot_plugin.store import is_url
    from snapshot_plugin.store.marker import is_store
    from snapshot_plugin.system.files import disk_errors

    where = call.config.storage_path
    if is_url(where):
        return await _inside(call)
    place = Path(where)
    try:
        with disk_errors("reading the store"):
            return [*look_at_place(place), *(await _inside(call, place) if is_store(place) else ())]
    except StoreUnavailable as error:
        return [_problem("store", error, run=next_command(error))]


async def _inside(call: Call, place: Path | None = None) -> list[Observation]:
    """Check what a store holds: in the directory *place*, or in a bucket or database, which may be unreachable."""
    import anyio.to_thread

    from snapshot_plugin.operations.session_rows import every_row

    findings: list[Observation] = []
    try:
        async with call.opened() as store:
            examine: Any = getattr(store, "examine", None)
            told = await anyio.to_thread.run_sync(examine) if examine else []
            if place is None and not examine:
                told = [("ok", call.config.storage_path)]
            findings += [Observation(area="store", level=level, what=what) for level, what in told]
            findings += look_at_sessions(call, store, await every_row(store, await store.list()))
            findings += look_at_quarantine(await store.quarantined())
            if place is not None:
                findings += look_at_leftovers(place, sum(each.size_bytes for each in await store.trash()))
    except SnapshotError as error:
        area = "keys" if error.code in ("key_missing", "wrong_key") else "store"
        findings.append(_problem(area, error, run=next_command(error)))
    return findings


def _problem(area: str, error: SnapshotError, *, run: str) -> Observation:
    return Observation(area=area, level="problem", what=f"{error.message}: {hint_of(error)}", run=run)


def _next(call: Call, findings: list[Observation]) -> str:
    """The remedy of the worst finding; if nothing is wrong, the usual next command."""
    for level in _WORST_FIRST[:2]:
        for finding in findings:
            if finding.level == level and finding.run:
                return call.out.run(finding.run) if finding.run.startswith("asnap ") else finding.run
    usual = {finding.area: finding.run for finding in findings if finding.run}
    if call.place and "sessions" not in {finding.area for finding in findings}:
        return "asnap paths"  # the place was named, and there is no store: it may be mistyped
    return call.out.run(usual["sessions"]) if "sessions" in usual else usual.get("agents", "asnap demo")
