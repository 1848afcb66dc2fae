"""Which snapshots a retention policy keeps, and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from snapshot_plugin import InvalidInput, InvalidPolicy, InvalidSnapshot, RetentionPolicy, SnapshotMeta
from snapshot_plugin.model.meta import SnapshotState
from snapshot_plugin.model.policy import Decision, plan
from tests.tries import tries

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def meta(
    seq: int,
    ago: timedelta = timedelta(0),
    *,
    tags: tuple[str, ...] = (),
    pinned: bool = False,
    state: SnapshotState = "ok",
) -> SnapshotMeta:
    return SnapshotMeta(session_id="s", seq=seq, saved_at=NOW - ago, snapshot_tags=tags, pinned=pinned, state=state)


def kept(metas: list[SnapshotMeta], policy: RetentionPolicy) -> list[int]:
    return [decision.seq for decision in plan(metas, policy, NOW) if decision.keep]


def why(metas: list[SnapshotMeta], policy: RetentionPolicy) -> dict[int, tuple[str, ...]]:
    return {decision.seq: decision.reasons for decision in plan(metas, policy, NOW)}


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_last_n_are_kept_and_the_rest_has_no_reason() -> None:
    metas = [meta(seq) for seq in (1, 2, 3, 4)]

    assert plan(metas, RetentionPolicy(keep_last=2), NOW) == (
        Decision(seq=1, keep=False),
        Decision(seq=2, keep=False),
        Decision(seq=3, keep=True, reasons=("last",)),
        Decision(seq=4, keep=True, reasons=("head", "last")),
    )


def test_snapshots_are_ordered_by_number_even_if_the_clock_ran_backwards() -> None:
    metas = [meta(3, 9 * DAY), meta(1, 1 * DAY), meta(2, 2 * DAY)]

    assert kept(metas, RetentionPolicy(keep_last=1)) == [3]


def test_clock_jumping_between_two_hours_uses_no_extra_hours() -> None:
    metas = [meta(1, 5 * HOUR), meta(2, 3 * HOUR), meta(3, 2 * HOUR), meta(4, 3 * HOUR), meta(5, 2 * HOUR)]

    assert kept(metas, RetentionPolicy(keep_hourly=3)) == [1, 4, 5]


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_within_counts_from_now_and_keeps_future_times() -> None:
    metas = [meta(1, 3 * DAY), meta(2, 2 * DAY), meta(3, -DAY), meta(4, 5 * DAY), meta(5, 9 * DAY)]

    assert kept(metas, RetentionPolicy(keep_within=2 * DAY)) == [2, 3, 5]


def test_longest_possible_duration_keeps_everything() -> None:
    assert kept([meta(1, 900 * DAY), meta(2)], RetentionPolicy(keep_within=timedelta.max)) == [1, 2]


@pytest.mark.requirement("STORE-VALUE-POLICY")
@pytest.mark.parametrize(
    ("rule", "step"),
    [("keep_hourly", HOUR), ("keep_daily", DAY), ("keep_weekly", 7 * DAY), ("keep_monthly", 31 * DAY)],
)
def test_each_period_keeps_its_newest_snapshot(rule: str, step: timedelta) -> None:
    later_same_period = timedelta(minutes=1)
    metas = [
        meta(seq, (4 - seq // 2) * step - (seq % 2) * later_same_period) for seq in range(2, 10)
    ]  # 2+3, 4+5, 6+7, 8+9 share a period

    policy = RetentionPolicy.model_validate({rule: 2})

    assert kept(metas, policy) == [7, 9]
    assert why(metas, policy)[7] == (rule.removeprefix("keep_"),)


def test_a_week_is_an_iso_week_across_the_new_year() -> None:
    thursday, friday = datetime(2026, 12, 31, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    metas = [
        SnapshotMeta(session_id="s", seq=seq, saved_at=day)
        for seq, day in ((1, thursday - 7 * DAY), (2, thursday), (3, friday))
    ]

    assert kept(metas, RetentionPolicy(keep_weekly=2)) == [1, 3]
    assert kept(metas, RetentionPolicy(keep_monthly=2)) == [2, 3]


def test_rule_with_places_left_also_keeps_the_oldest() -> None:
    metas = [meta(1, 3 * HOUR), meta(2, 2 * HOUR), meta(3, HOUR)]

    reasons = why(metas, RetentionPolicy(keep_daily=7))

    assert reasons == {1: ("oldest daily",), 2: (), 3: ("head", "daily")}


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_tagged_snapshots_are_kept_and_the_reason_names_the_tag() -> None:
    metas = [meta(1, tags=("pre-deploy", "x")), meta(2, tags=("x",)), meta(3)]

    assert why(metas, RetentionPolicy(keep_tags=("pre-deploy",))) == {1: ("tag pre-deploy",), 2: (), 3: ("head",)}


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_pinned_session_keeps_every_snapshot() -> None:
    metas = [meta(1), meta(2), meta(3, pinned=True)]

    assert kept(metas, RetentionPolicy(keep_last=1)) == [1, 2, 3]


def test_unpinned_session_is_not_protected_by_earlier_pins() -> None:
    assert kept([meta(1, pinned=True), meta(2)], RetentionPolicy(keep_last=1)) == [2]


def test_damage_does_not_evict_the_newest_intact_snapshot() -> None:
    metas = [meta(1), meta(2), meta(3, state="damaged"), meta(4, state="damaged")]

    assert why(metas, RetentionPolicy(keep_last=1)) == {
        1: (),
        2: ("head", "last"),
        3: ("damaged",),
        4: ("head", "damaged"),
    }


def test_pin_is_read_from_the_newest_readable_snapshot() -> None:
    metas = [meta(1), meta(2, pinned=True), meta(3, state="damaged")]

    assert kept(metas, RetentionPolicy(keep_last=1)) == [1, 2, 3]


def test_no_snapshots_give_no_decisions() -> None:
    assert plan([], RetentionPolicy(keep_last=1), NOW) == ()


@pytest.mark.requirement("STORE-VALUE-POLICY-EMPTY")
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"keep_last": 0},
        {"keep_tags": ()},
        {"keep_last": -1},
        {"keep_daily": -7},
        {"keep_within": timedelta(0)},
        {"keep_within": -DAY},
        {"keep_lats": 5, "keep_daily": 1},
        {"keep_last": "many"},
    ],
)
def test_invalid_or_empty_policy_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        RetentionPolicy(**rules)
    with pytest.raises(ValidationError):
        RetentionPolicy.model_validate(rules)


def test_a_policy_cannot_evolve_into_an_empty_one() -> None:
    with pytest.raises(InvalidPolicy):
        RetentionPolicy(keep_last=1).evolve(keep_last=0)


def test_policy_round_trips_through_json() -> None:
    policy = RetentionPolicy(keep_last=3, keep_within=36 * HOUR, keep_tags=("a",))

    assert RetentionPolicy.model_validate(json.loads(json.dumps(policy.raw()))) == policy


def test_snapshots_of_two_sessions_are_refused() -> None:
    with pytest.raises(InvalidInput):
        plan([meta(1), meta(2).evolve(session_id="t")], RetentionPolicy(keep_last=1), NOW)


def test_naive_now_is_refused() -> None:
    with pytest.raises(InvalidSnapshot):
        plan([meta(1)], RetentionPolicy(keep_last=1), NOW.replace(tzinfo=None))


STATES = st.sampled_from(["ok", "ok", "ok", "damaged", "encrypted"])
TAGS = st.lists(st.sampled_from("abc"), max_size=2).map(tuple)
METAS = st.lists(
    st.builds(
        meta,
        st.integers(1, 60),
        st.integers(-48, 24 * 90).map(lambda hours: hours * HOUR),
        tags=TAGS,
        pinned=st.sampled_from([False, False, False, True]),
        state=STATES,
    ),
    max_size=25,
    unique_by=lambda found: found.seq,
)
RULES = st.fixed_dictionaries(
    {
        "keep_last": st.integers(0, 5),
        "keep_within": st.none() | st.integers(1, 500).map(lambda hours: hours * HOUR),
        "keep_hourly": st.integers(0, 5),
        "keep_daily": st.integers(0, 5),
        "keep_weekly": st.integers(0, 5),
        "keep_monthly": st.integers(0, 5),
        "keep_tags": TAGS,
    }
).filter(lambda rules: any(rules.values()))
"""Each rule by itself may be off; all of them together are never empty."""


@pytest.mark.requirement("STORE-VALUE-POLICY")
@tries(100)
@given(METAS, RULES)
def test_the_head_is_always_kept_and_every_snapshot_gets_one_decision(
    metas: list[SnapshotMeta], rules: dict[str, object]
) -> None:
    decisions = plan(metas, RetentionPolicy.model_validate(rules), NOW)

    assert [decision.seq for decision in decisions] == sorted(found.seq for found in metas)
    assert all(decision.keep == bool(decision.reasons) for decision in decisions)
    assert all(decision.keep for decision in decisions[-1:])


@tries(100)
@given(METAS, st.integers(1, 30))
def test_keep_last_keeps_at_least_that_many(metas: list[SnapshotMeta], last: int) -> None:
    assert len(kept(metas, RetentionPolicy(keep_last=last))) >= min(last, len(metas))


@tries(100)
@given(METAS, RULES, RULES)
def test_more_or_larger_rules_never_forget_more(
    metas: list[SnapshotMeta], some: dict[str, object], others: dict[str, object]
) -> None:
    def more(one: object, other: object) -> object:
        if isinstance(one, tuple) and isinstance(other, tuple):
            return one + other
        return max((value for value in (one, other) if value is not None), default=None)  # type: ignore[type-var]

    larger = {name: more(some[name], others[name]) for name in some}

    assert set(kept(metas, RetentionPolicy.model_validate(some))) <= set(
        kept(metas, RetentionPolicy.model_validate(larger))
    )


@tries(100)
@given(METAS, RULES)
def test_forgetting_again_at_the_same_moment_forgets_nothing(
    metas: list[SnapshotMeta], rules: dict[str, object]
) -> None:
    policy = RetentionPolicy.model_validate(rules)
    once = kept(metas, policy)

    assert kept([found for found in metas if found.seq in once], policy) == once
