"""Commands on a store that is not on this disk."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import InvalidInput, open_store, persistent_session
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap
from tests.store.s3_server import BUCKET, S3Server, running

URL = f"s3://{BUCKET}/sessions-of-ours"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    async def save() -> None:
        async with open_store(URL) as store:
            for texts in ("a", "ab", "abc"):
                await store.save(make_snapshot(*texts, title="Somewhere else"))

    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        anyio.run(save)
        yield server


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
@pytest.mark.usefixtures("bucket")
def test_sessions_in_a_bucket_are_listed_shown_searched_checked_and_forgotten(asnap: Asnap) -> None:
    for words in (
        ("list",),
        ("show", "session"),
        ("search", "Somewhere"),
        ("check",),
        ("forget", "session", "--keep-last", "1", "--yes"),
    ):
        ran = asnap(*words, "--store", URL)
        assert (ran.code, "session" in ran.out + ran.err) == (0, True), (words, ran)


@pytest.mark.requirement("TRUST-REFERENCE")
@pytest.mark.usefixtures("bucket")
def test_a_reference_into_a_bucket_means_the_same_whatever_sessions_are_called(asnap: Asnap) -> None:
    async def save() -> None:
        async with open_store(URL) as store:
            for name in ("latest", "session@1"):
                before = datetime(2020, 1, 1, tzinfo=UTC)
                await store.save(make_snapshot("a", session_id=name, created_at=before, updated_at=before))

    anyio.run(save)
    refs = ("latest", "session@1", "id:latest", "id:session@1", "id:session@2")
    shown = [asnap("show", ref, "--store", URL, "--json").json for ref in refs]
    assert [(each["session"]["session_id"], each["snapshot"]) for each in shown] == [
        ("session", 3), ("session", 1), ("latest", 1), ("session@1", 1), ("session", 2)
    ]  # fmt: skip


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    "words",
    [
        ("run", "--store", URL, "--", "touch"),
        ("resume", "session", "--store", URL, "--exec", "--with"),
        ("recover", "--store", URL),
    ],
)
def test_a_bucket_is_refused_for_live_sessions_before_anything_starts(
    asnap_process: Asnap, words: tuple[str, ...], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    if words[-1] == "--with":
        words = (*words, f"touch {started}")
    ran = asnap_process(*words, *([str(started)] if words[-1] == "touch" else []))
    assert ran.code == 2
    assert "no leases" in ran.err
    assert "ObjectStore" not in ran.err
    assert "postgresql://" in ran.err
    assert not started.exists()


def test_list_of_an_empty_database_says_how_to_begin(asnap: Asnap, postgres_url: str) -> None:
    ran = asnap("list", "--store", postgres_url)
    assert (ran.code, "asnap chat --" in ran.err) == (0, True), ran
    assert asnap("list", "--store", postgres_url.replace("/postgres?", "/nosuch?")).code == 10


def test_list_of_an_empty_bucket_says_how_to_begin(asnap: Asnap, bucket: S3Server) -> None:
    ran = asnap("list", "--json", "--store", f"s3://{BUCKET}/nothing-here")
    assert (ran.code, ran.json["sessions"]) == (0, []), ran


def test_session_of_a_crashed_owner_is_free_when_its_lease_expires(asnap: Asnap, postgres_url: str) -> None:
    with open_store(postgres_url).sync as store:
        store.save(make_snapshot("a"))
    place = place_of(open_store(postgres_url))
    assert place is not None
    hold = place.take("session", Owner.this_process(since=datetime.now(UTC)))
    ran = asnap("resume", "session", "--print", "--store", postgres_url)
    hold.release()
    assert ran.code == 6
    assert "its lease has expired" in ran.err


@pytest.mark.usefixtures("bucket")
def test_a_persistent_session_refuses_a_bucket() -> None:
    with pytest.raises(InvalidInput, match="no leases"):
        persistent_session(object(), agent_id="a", store=URL)


@pytest.mark.parametrize("words", ["show session", "diff session@1 session@3", "tag session x"])
def test_reading_one_session_does_not_read_the_others(asnap: Asnap, bucket: S3Server, words: str) -> None:
    async def save() -> None:
        async with open_store(URL) as store:
            await store.save(make_snapshot("a", session_id="other"))

    anyio.run(save)
    bucket.requests.clear()
    ran = asnap(*words.split(), "--store", URL)
    assert ran.code == 0, ran
    assert not [request for request in bucket.requests if request.key.endswith("sessions/other")]


def test_doctor_checks_a_bucket(asnap: Asnap, bucket: S3Server) -> None:
    healthy = asnap("doctor", "--store", URL, "--json").json
    about = [finding["what"] for finding in healthy["findings"] if finding["area"] in ("store", "sessions")]
    assert any("keeps writers apart" in what for what in about)
    assert any("1 session, " in what for what in about)
    assert healthy["next"] == f"asnap list --store {URL}"
    assert asnap(*healthy["next"].split()[1:]).code == 0

    bucket.honours = ()
    ran = asnap("doctor", "--store", URL, "--json")
    assert (ran.code, "ignores conditional writes" in ran.out) == (1, True)
    bucket.fault = lambda _request: "expired"
    assert "ExpiredToken" in asnap("doctor", "--store", URL).out
