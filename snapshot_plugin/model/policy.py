"""Which snapshots of a session to keep: restic's rules, as a pure function.

A rule says what to *keep*; a snapshot is forgotten if no rule keeps it. Adding a rule, or raising a number, never
forgets more. Snapshots are ordered by sequence number, because clocks may run backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from snapshot_plugin.errors import InvalidInput, InvalidPolicy
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.times import as_utc, rfc3339, span_of
from snapshot_plugin.model.value import Value

__all__ = ["BEFORE_FALLBACK", "Decision", "RetentionPolicy", "keeping_tagged", "plan"]

BEFORE_FALLBACK = "before-fallback"
"""The tag of the last snapshot before a session was started fresh. It is set automatically."""
_FALLBACKS = 3


def _span(value: Any) -> Any:
    return (span_of(value) or value) if isinstance(value, str) else value


Count = Annotated[int, Field(ge=0)]
Span = Annotated[timedelta, BeforeValidator(_span), Field(gt=timedelta(0))]


class RetentionPolicy(Value):
    """Which snapshots of a session to keep. The newest snapshot and pinned sessions are always kept.

    `keep_hourly` = 24 keeps the newest snapshot of each of the last 24 hours *that have one*, in UTC; days, weeks
    and months work the same way. A rule that finds fewer snapshots than it may keep also keeps the oldest one.
    Durations may be text such as ``7d``.

    Raises:
        InvalidPolicy: there is no rule, or a rule has a negative number or an unknown name.
    """

    model_config = ConfigDict(extra="forbid")
    _refused_as: ClassVar[type[InvalidInput]] = InvalidPolicy

    keep_last: Count = 0
    """The newest snapshots."""
    keep_within: Span | None = None
    """Snapshots that are younger than this, from now."""
    keep_hourly: Count = 0
    """The newest of each hour."""
    keep_daily: Count = 0
    """The newest of each day."""
    keep_weekly: Count = 0
    """The newest of each ISO week."""
    keep_monthly: Count = 0
    """The newest of each month."""
    keep_tags: tuple[str, ...] = ()
    """Snapshots with any of these tags."""
    keep_fallbacks: Count = 0
    """The newest snapshots tagged ``before-fallback``."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            keep_last: int = 0,
            keep_within: timedelta | float | str | None = None,
            keep_hourly: int = 0,
            keep_daily: int = 0,
            keep_weekly: int = 0,
            keep_monthly: int = 0,
            keep_tags: Iterable[str] = (),
            keep_fallbacks: int = 0,
        ) -> None: ...

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if not any(self.__dict__.values()):
            raise InvalidPolicy("the policy has no rule, so it would keep nothing", hint="set keep_last or another")
        return self


class Decision(Value):
    """The decision for one snapshot: kept for these reasons, or forgotten if there are none."""

    seq: int
    keep: bool
    reasons: tuple[str, ...] = ()


def keeping_tagged(policy: RetentionPolicy, metas: Iterable[SnapshotMeta]) -> RetentionPolicy:
    """*policy*, extended to keep every tagged snapshot in *metas*.

    Only the newest three tagged ``before-fallback`` are kept: an agent that can never load a session makes one at
    each start.
    """
    tags = {tag for meta in metas for tag in meta.snapshot_tags} - {BEFORE_FALLBACK}
    fallbacks = max(policy.keep_fallbacks, _FALLBACKS)
    return policy.evolve(keep_tags=tuple(sorted(tags.union(policy.keep_tags))), keep_fallbacks=fallbacks)


class _Bucket(NamedTuple):
    name: str
    limit: int
    period: Callable[[datetime], str]


_Claim = tuple[int, str]


def plan(metas: Iterable[SnapshotMeta], policy: RetentionPolicy, now: datetime) -> tuple[Decision, ...]:
    """Decide for each snapshot of one session whether *policy* keeps it, and why; in order of sequence numbers.

    An unreadable snapshot is never forgotten, and does not count towards a rule.

    Raises:
        InvalidInput: the snapshots are of several sessions, or *now* has no time zone.
    """
    newest_first = sorted(metas, key=lambda meta: meta.seq, reverse=True)
    if len({meta.session_id for meta in newest_first}) > 1:
        raise InvalidInput("a plan is made for one session at a time", hint="group the snapshots by session_id")
    reasons: dict[int, list[str]] = {meta.seq: [] for meta in reversed(newest_first)}
    for seq, reason in _claims(newest_first, policy, as_utc(now)):
        reasons[seq].append(reason)
    return tuple(Decision(seq=seq, keep=bool(why), reasons=tuple(why)) for seq, why in reasons.items())


def _claims(newest_first: Sequence[SnapshotMeta], policy: RetentionPolicy, now: datetime) -> Iterator[_Claim]:
    readable = [meta for meta in newest_first if meta.state == "ok"]
    yield from _always(newest_first, readable)
    yield from ((meta.seq, "last") for meta in readable[: policy.keep_last])
    for meta in readable:
        if policy.keep_within is not None and now - meta.saved_at <= policy.keep_within:
            yield meta.seq, "within"
        yield from ((meta.seq, f"tag {tag}") for tag in policy.keep_tags if tag in meta.snapshot_tags)
    before = [meta for meta in readable if BEFORE_FALLBACK in meta.snapshot_tags]
    yield from ((meta.seq, "fallback") for meta in before[: policy.keep_fallbacks])
    for bucket in _buckets(policy):
        yield from _newest_of_each(bucket, readable)


def _always(newest_first: Sequence[SnapshotMeta], readable: Sequence[SnapshotMeta]) -> Iterator[_Claim]:
    """The snapshots that every policy keeps. The newest readable snapshot says whether the session is pinned."""
    heads = (*newest_first[:1], *readable[:1])
    yield from ((seq, "head") for seq in dict.fromkeys(meta.seq for meta in heads))
    pinned = any(meta.pinned for meta in heads)
    for meta in newest_first:
        if pinned:
            yield meta.seq, "pinned"
        if meta.state != "ok":
            yield meta.seq, meta.state


def _buckets(policy: RetentionPolicy) -> tuple[_Bucket, ...]:
    return (
        _Bucket("hourly", policy.keep_hourly, lambda moment: rfc3339(moment)[:13]),
        _Bucket("daily", policy.keep_daily, lambda moment: rfc3339(moment)[:10]),
        _Bucket("weekly", policy.keep_weekly, lambda moment: moment.strftime("%G-%V")),
        _Bucket("monthly", policy.keep_monthly, lambda moment: rfc3339(moment)[:7]),
    )


def _newest_of_each(bucket: _Bucket, newest_first: Sequence[SnapshotMeta]) -> Iterator[_Claim]:
    seen: set[str] = set()
    for meta in newest_first:
        if len(seen) >= bucket.limit:
            return
        period = bucket.period(meta.saved_at)
        if period not in seen:
            yield meta.seq, bucket.name
        elif meta is newest_first[-1]:
            yield meta.seq, f"oldest {bucket.name}"
        seen.add(period)
