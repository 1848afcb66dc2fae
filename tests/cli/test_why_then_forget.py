"""What ``asnap why`` says of every snapshot is what ``asnap forget --policy`` then does, whatever the history."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from snapshot_plugin import FilesystemStore
from snapshot_plugin.testing import make_message, make_snapshot
from tests.cli.conftest import Asnap
from tests.tries import tries

NOW = datetime.now(UTC)
HALF_A_DAY = timedelta(hours=12)  # no age is near a limit, which are whole days


class Taken(NamedTuple):
    age_days: int
    tags: tuple[str, ...]
    pinned: bool


TAGS = st.sampled_from([(), (), (), ("release",), ("before-fallback",), ("before-fallback", "release")])
TAKEN = st.builds(Taken, st.integers(0, 40), TAGS, st.sampled_from([False, False, False, True]))
HISTORIES = st.lists(st.lists(TAKEN, min_size=1, max_size=6), min_size=1, max_size=3)
COUNTS = st.integers(0, 3)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "keep_last": st.integers(1, 3), "keep_within": st.sampled_from(["3d", "20d"]), "keep_hourly": COUNTS,
        "keep_daily": COUNTS, "keep_weekly": COUNTS, "keep_monthly": COUNTS,
        "keep_tags": st.sampled_from([[], ["release"]]), "keep_fallbacks": COUNTS,
    },
).filter(lambda rules: any(rules.values()))  # fmt: skip
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "ASNAP_RETENTION": RULES.map(json.dumps),
        "ASNAP_MAX_SNAPSHOTS_PER_SESSION": st.integers(1, 4).map(str),
        "ASNAP_MAX_SESSIONS": st.integers(1, 3).map(str),
        "ASNAP_MAX_SESSION_AGE": st.sampled_from(["5d", "30d"]),
    },
)


def saved_histories(place: Path, histories: list[list[Taken]]) -> None:
    moment = NOW
    with FilesystemStore(place, background=False, clock=lambda: moment).sync as store:
        for number, history in enumerate(histories):
            snapshot = make_snapshot(session_id=f"s{number}")
            for n, taken in enumerate(history):
                moment = NOW - timedelta(days=taken.age_days) - HALF_A_DAY
                snapshot = snapshot.append(make_message(str(n)), updated_at=moment, pinned=taken.pinned)
                store.save(snapshot, tags=taken.tags)


def held(place: Path) -> set[tuple[str, int]]:
    """Every snapshot there is."""
    with FilesystemStore(place, background=False).sync as store:
        return {(meta.session_id, each.seq) for meta in store.list() for each in store.history(meta.session_id)}


def dropped_by(answer: Any, before: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """What a run of ``asnap forget`` says goes."""
    gone: set[tuple[str, int]] = set()
    for fate in answer["sessions"]:
        if fate["what"] == "session":
            gone |= {each for each in before if each[0] == fate["session_id"]}
        gone |= {(fate["session_id"], each["snapshot"]) for each in fate["snapshots"] if not each["keep"]}
    return gone


@given(HISTORIES, SETTINGS)
@tries(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_why_says_of_every_snapshot_what_forget_then_does(
    asnap: Asnap, place: Path, histories: list[list[Taken]], chosen: Mapping[str, str]
) -> None:
    shutil.rmtree(place, ignore_errors=True)
    saved_histories(place, histories)
    before = held(place)

    with patch.dict(os.environ, chosen):
        told = {each: asnap("why", f"{each[0]}@{each[1]}", "--json").json["keep"] for each in before}
        planned = asnap("forget", "--all", "--policy", "--dry-run", "--json").json
        assert held(place) == before
        done = asnap("forget", "--all", "--policy", "--yes", "--json").json

    goes = {each for each, keep in told.items() if not keep}
    assert dropped_by(planned, before) == goes
    assert dropped_by(done, before) == goes
    assert held(place) == before - goes
