"""Commands on a store that is not on this disk."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from snapshot_plugin import open_store
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
@pytest.mark.parametrize("words", [("run", "--store", URL, "--", "true"), ("recover", "--store", URL)])
def test_what_needs_a_disk_says_so(asnap_process: Asnap, words: tuple[str, ...]) -> None:
    ran = asnap_process(*words)
    assert ran.code == 2
    assert "not a store on this disk" in ran.err
