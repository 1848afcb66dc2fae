"""Commands on a store that is not on this disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import open_store, persistent_session
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap
from tests.store.s3_server import BUCKET, running

URL = f"s3://{BUCKET}/sessions-of-ours"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    async def save() -> None:
        async with open_store(URL) as store:
            for texts in ("a", "ab", "abc"):
                await store.save(make_snapshot(*texts, title="Somewhere else"))

    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        anyio.run(save)
        yield


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


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
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
    assert "postgresql://" in ran.err
    assert not started.exists()


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
@pytest.mark.usefixtures("bucket")
def test_a_persistent_session_refuses_a_bucket() -> None:
    with pytest.raises(InvalidInput, match="no leases"):
        persistent_session(object(), agent_id="a", store=URL)
