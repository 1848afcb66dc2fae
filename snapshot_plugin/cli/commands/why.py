"""``asnap why``: what triggered a snapshot, what it is based on, and why the policy keeps or drops it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Output
from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.references import Target, find
from snapshot_plugin.operations.text import clock_time, long_ago, plain, size

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.policy import RetentionPolicy

__all__ = ["Why", "command"]

_TRIGGERS = {
    "manual": "requested by a person or a program",
    "event": "a turn ended, or something else worth keeping happened",
    "auto": "the session had changed, and the interval had passed",
    "exit": "the session was stopped",
    "signal": "the process was told to end",
    "recovered": "recovered after its process was killed",
    "snapshot_all": "all live sessions were saved together, for example before a deploy",
    "fallback": "the state before a fresh start, because the agent could not load the session",
    "fork": "the session was branched",
    "label": "its title, tags, pin or note were changed",
    "import": "it was imported",
    "migrate": "it was upgraded to the current version",
    "memory": "the agent's working memory changed",
    "merge": "two branches were merged",
}
_REASONS = {
    "head": "it is the newest",
    "last": "it is one of the last {keep_last}",
    "within": "it is younger than {keep_within}",
    "hourly": "it is the newest of its hour ({keep_hourly} are kept)",
    "daily": "it is the newest of its day ({keep_daily} are kept)",
    "weekly": "it is the newest of its week ({keep_weekly} are kept)",
    "monthly": "it is the newest of its month ({keep_monthly} are kept)",
    "pinned": "its session is pinned",
    "fallback": "it is one of the last {keep_fallbacks} from before a fresh start",
    "damaged": "it cannot be read, and what cannot be read is never dropped",
    "encrypted": "it cannot be read, and what cannot be read is never dropped",
    "too_new": "it cannot be read, and what cannot be read is never dropped",
}


class ForkOrigin(Part):
    """The session and snapshot a fork came from."""

    session_id: str
    snapshot: int
    messages: int


class Why(Document):
    """One snapshot: its trigger and base, and whether it is kept."""

    kind: ClassVar[str] = "why"
    session_id: str
    title: str | None
    snapshot: int
    newest: int
    saved_at: datetime
    state: str
    problem: str | None
    trigger: str
    because: str
    """The trigger in words."""
    tags: tuple[str, ...]
    based_on: int | None
    """The snapshot before it; null for the first one, or if those before it were dropped."""
    added_messages: int
    """How many messages it has more than that one."""
    fork_of: ForkOrigin | None
    size_bytes: int
    keep: bool
    reasons: tuple[str, ...]
    """Why the policy keeps it; none if it drops it."""
    session_goes: str | None
    """Why the settings do not keep the session at all; null if they do."""
    policy: dict[str, Any]
    policy_from: str
    """Where the policy was set."""
    as_of: datetime


def show_why(answer: Why, out: Output) -> None:
    """Print one snapshot: its trigger and base, and whether it is kept."""
    out.line(f"snapshot {answer.snapshot} of {plain(answer.title or '') or answer.session_id}", bold=True)
    when = f"{clock_time(answer.saved_at)} ({long_ago(answer.saved_at, answer.as_of)})"
    out.line(f"saved     {when}, {size(answer.size_bytes)}")
    out.line(f"because   {plain(answer.because)} ({plain(answer.trigger)})")
    out.line(f"based on  {_base(answer)}")
    if answer.tags:
        out.line(f"tags      {plain(', '.join(answer.tags))}")
    if answer.state != "ok":
        out.line(f"{answer.state:<10}{plain(answer.problem or '')}", fg="red")
    verdict, colour = ("kept", "green") if answer.keep else ("dropped", "yellow")
    again = out.run("asnap forget --policy")
    going = answer.session_goes or f"no rule keeps it; a manager drops it at the next save, as does {again}"
    why = "; ".join(map(plain, answer.reasons)) or going
    out.line(f"{out.style(f'{verdict:<10}', fg=colour)}{why}")
    rules = ", ".join(f"{name} = {value}" for name, value in answer.policy.items())
    out.line(f"policy    {plain(rules)} ({plain(answer.policy_from)})")


def _base(answer: Why) -> str:
    if answer.based_on is not None:
        return f"snapshot {answer.based_on}, with {answer.added_messages:+} messages"
    if fork := answer.fork_of:
        return f"session {fork.session_id}@{fork.snapshot}, its first {fork.messages} messages"
    return "nothing that is still there" if answer.snapshot > 1 else "nothing: it is the first"


@declare(
    "why",
    answer=Why,
    show=show_why,
    examples=(
        ("asnap why latest", "the newest snapshot of the newest session"),
        ("asnap why 01jd@5", "snapshot 5: what triggered it, and whether it stays"),
        ("asnap why 'fix auth' --json | jq .reasons", "why the policy keeps it"),
    ),
    exits=(4, 7, 10),
)
@click.argument("ref", metavar="REF[@N]")
async def command(call: Call, *, ref: str) -> Why:
    """Explain why a snapshot exists: its trigger and its base.

    And whether it is kept: by which retention rules, and where they were set.
    """
    from snapshot_plugin.manager.retention import policy_for, surplus_of
    from snapshot_plugin.model.ids import owner_of

    async with call.store() as store:
        target = await find(store, ref)
        history = await store.history(target.session_id)
        metas = await store.list()
    meta, before = _found(target, history)
    policy = policy_for(history, call.config)
    owner = next((each for each in metas if each.session_id == owner_of(meta.session_id)), target.meta)
    surplus = surplus_of(metas, call.config, lambda: call.now)
    goes = next((why for each, why in surplus if each.session_id == owner.session_id), None)
    reasons = () if goes else _reasons(history, meta.seq, policy, call.now)
    if owner is not target.meta and owner.pinned:
        reasons = (_REASONS["pinned"], *reasons)
    rules = policy.raw()
    return Why.from_fields(
        meta,
        title=target.meta.title,
        snapshot=meta.seq,
        newest=history[0].seq,
        because=_TRIGGERS.get(meta.trigger, "the program that saved it gave this reason"),
        tags=meta.snapshot_tags,
        based_on=before.seq if before else None,
        added_messages=meta.messages - (before.messages if before else 0),
        fork_of=_origin(meta),
        keep=bool(reasons),
        reasons=reasons,
        session_goes=goes,
        policy=rules,
        policy_from=_origin_of_policy(call),
        as_of=call.now,
    )


def _found(target: Target, history: Sequence[SnapshotMeta]) -> tuple[SnapshotMeta, SnapshotMeta | None]:
    """Return the requested snapshot and the one before it."""
    wanted = target.seq or history[0].seq
    for number, meta in enumerate(history):
        if meta.seq == wanted:
            return meta, next(iter(history[number + 1 :]), None)
    known = ", ".join(str(meta.seq) for meta in history[:8])
    raise SnapshotNotFound(
        f"session {target.session_id} has no snapshot {wanted}",
        session_id=target.session_id,
        hint=f"it has {known}",
    )


def _origin(meta: SnapshotMeta) -> ForkOrigin | None:
    if meta.parent is None:
        return None
    return ForkOrigin(
        session_id=meta.parent.session_id, snapshot=meta.parent.seq, messages=meta.parent.message_index
    )


def _reasons(history: Sequence[SnapshotMeta], seq: int, policy: RetentionPolicy, now: datetime) -> tuple[str, ...]:
    """Return why ``asnap forget --policy`` keeps the snapshot; empty if it drops it."""
    from snapshot_plugin.model.policy import plan

    decision = next(each for each in plan(history, policy, now) if each.seq == seq)
    if not decision.keep and any(meta.state != "ok" for meta in history):
        return ("its session is damaged, and damaged sessions are not thinned",)
    return tuple(_in_words(reason, policy) for reason in decision.reasons)


def _in_words(reason: str, policy: RetentionPolicy) -> str:
    if reason.startswith("tag "):
        return f"it is tagged {reason.removeprefix('tag ')}"
    if reason.startswith("oldest "):
        return f"it is the oldest, and the {reason.removeprefix('oldest ')} rule is not full yet"
    return _REASONS.get(reason, reason).format(**dict(policy))


def _origin_of_policy(call: Call) -> str:
    setting = "max_snapshots_per_session" if call.config.retention is None else "retention"
    return f"{setting}, from {call.config.origin(setting)}"
