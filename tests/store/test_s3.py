"""``s3://`` URLs, and what a service that refuses looks like: over HTTP, with the client that users have."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snapshot_plugin import (
    Conflict,
    InvalidInput,
    KeyMissing,
    MissingExtra,
    SnapshotError,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
    open_store,
)
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.search.index import opened_index
from snapshot_plugin.store import ledger_index, s3
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.testing import make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.store.s3_server import BUCKET, Request, S3Server, running

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("ORBIT-FUTURE-CLOUD")]
_PATIENCE = 60
URL = f"s3://{BUCKET}/some/where"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in ("ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_KEY_COMMAND", "ASNAP_PASSPHRASE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(s3, "RETRIES", 0)
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


async def test_a_url_names_a_store_that_several_machines_use(server: S3Server) -> None:
    async with open_store(URL) as here, open_store(f"{URL}/") as there:
        await here.save(make_snapshot("a"))
        assert await there.load("session") == make_snapshot("a")
        assert (await there.save(make_snapshot("a", "b"), base=1)).seq == 2
        assert await here.load("session") == make_snapshot("a", "b")
    assert {name.rpartition("some/where")[0] for name in server.objects} == {""}


async def test_bucket_without_a_prefix_is_a_store(server: S3Server) -> None:
    async with open_store(f"s3://{BUCKET}") as store:
        await store.save(make_snapshot("a"))
    assert sorted(server.objects) == ["STORE.json", "sessions/session"]


async def test_the_key_comes_from_the_environment(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASNAP_KEY", generate_key())
    async with open_store(URL) as store:
        await store.save(make_snapshot("a secret"))
    assert not [name for name, data in server.objects.items() if b"secret" in data]

    monkeypatch.delenv("ASNAP_KEY")
    with pytest.raises(KeyMissing):
        await open_store(URL).load("session")


@pytest.mark.parametrize(
    "url",
    [
        "s3:",
        "s3://",
        "s3:///prefix",
        "s3://someone:verysecret@bucket/prefix",
        "s3://verysecret@bucket",
        "s3://bucket:9000/verysecret",
        "s3://bucket/prefix?verysecret",
        "s3://bucket/prefix#verysecret",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://bucket/a%00b",
    ],
)
def test_url_without_a_bucket_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_store(url)
    assert "verysecret" not in str(refused.value)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("obstore", "snapshot_plugin.store.s3"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "snapshot_plugin.store.bucket", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra) as missing:
        open_store(URL)
    assert "snapshot-plugin[s3]" in missing.value.hint


# A service that refuses


async def test_missing_permission_is_forbidden_and_not_retryable(server: S3Server) -> None:
    server.fault = lambda _request: "forbidden"
    with pytest.raises(StoreForbidden) as refused:
        await open_store(URL).list()
    assert (refused.value.code, refused.value.retryable) == ("store_forbidden", False)
    assert "secret" not in str(refused.value)


async def test_read_only_credentials_can_read(server: S3Server) -> None:
    async with open_store(URL) as store:
        await store.save(make_snapshot("a"))
    server.fault = lambda request: "forbidden" if request.method != "GET" else None

    async with open_store(URL) as store:
        assert await store.load("session") == make_snapshot("a")
        assert len(await store.list()) == 1
        with pytest.raises(StoreForbidden):
            await store.save(make_snapshot("a", "b"), base=1)
        assert await store.load("session") == make_snapshot("a")


@pytest.mark.parametrize("saving", [False, True])
async def test_missing_bucket_is_a_missing_store(server: S3Server, saving: bool) -> None:
    store = open_store("s3://another-bucket/prefix")
    with pytest.raises(StoreNotFound) as missing:
        await (store.save(make_snapshot("a")) if saving else store.list())
    assert not missing.value.retryable
    assert "bucket" in missing.value.hint


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_busy_service_is_unavailable_and_retryable(server: S3Server, method: str) -> None:
    store = open_store(URL)
    await store.save(make_snapshot("a"))
    server.fault = lambda request: "slow down" if request.method == method else None
    with pytest.raises(StoreUnavailable) as refused:
        await (store.save(make_snapshot("a", "b")) if method == "PUT" else store.load("session"))
    assert (type(refused.value), refused.value.retryable) == (StoreUnavailable, True)

    server.fault = lambda _request: None
    assert (await store.save(make_snapshot("a", "b"))).seq == 2


async def test_unreachable_service_is_unavailable(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable) as refused:
        await open_store(URL).list()
    assert refused.value.retryable
    assert refused.value.hint


async def test_requests_are_retried_and_a_save_happens_once(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "RETRIES", 5)
    store = open_store(URL)
    await store.save(make_snapshot("a"))
    faults = iter(["lost", "slow down"])

    def unlucky(request: Request) -> str | None:
        return next(faults, None) if request.method == "PUT" else None

    server.fault = unlucky
    assert (await store.save(make_snapshot("a", "b"))).seq == 2
    assert [meta.seq for meta in await store.history("session")] == [2, 1]
    assert (await store.save(make_snapshot("a", "b", "c"))).seq == 3


@pytest.mark.parametrize("honours", [(), ("If-None-Match",), ("If-Match",)], ids=["none", "new", "changed"])
async def test_a_service_that_ignores_a_condition_is_refused_before_anything_is_saved(
    server: S3Server, honours: tuple[str, ...]
) -> None:
    server.honours = honours
    with pytest.raises(InvalidInput):
        await open_store(URL).save(make_snapshot("a"))
    assert not [name for name in server.objects if "sessions/" in name]


async def test_store_moved_to_a_service_without_atomic_conditions_is_refused(server: S3Server) -> None:
    await open_store(URL).save(make_snapshot("a"))
    server.race = threading.Barrier(8)
    with pytest.raises(InvalidInput, match="8 writers"):
        await open_store(URL).save(make_snapshot("a", "b"), base=1)
    assert await open_store(URL).load("session") == make_snapshot("a")


async def test_gs_urls_name_a_store_whose_versions_are_numbers(server: S3Server) -> None:
    url = f"gs://{BUCKET}/some/where"
    async with open_store(url) as here, open_store(url) as there:
        await here.save(make_snapshot("a"))
        loaded = await there.load("session")
        await here.save(make_snapshot("a", "b"))
        with pytest.raises(Conflict):
            await there.save(loaded.evolve(title="late"))
        await here.delete("session", purge=True)
        assert await there.list() == []


async def test_short_turns_send_a_bounded_number_of_bytes_and_requests(server: S3Server) -> None:
    """A ledger that grew up to 128 KiB sent 68 KB for each of a thousand short turns."""
    turns, texts = 200, list[str]()
    async with open_store(URL) as store:
        await store.list()
        server.sent, server.requests[:] = 0, []
        for number in range(turns):
            texts.append(f"turn {number}")
            await store.save(make_snapshot(*texts))
        assert server.sent < turns * 16_000
        assert len(server.requests) <= 1.1 * turns


async def test_a_list_reads_only_the_sessions_that_changed(server: S3Server) -> None:
    async with open_store(URL) as store, open_store(URL) as another:
        for number in range(70):
            await store.save(make_snapshot("a", session_id=f"session-{number}"))
        first = await store.list()
        await store.delete("session-1")
        await store.save(make_snapshot("a", "b", session_id="session-2"))
        server.requests.clear()
        again = await another.list()
        assert [entry.session_id for entry in await another.trash()] == ["session-1"]
    assert len(_sessions_read(server)) == 4, "the two that changed, for the list and for the trash"
    assert {meta.session_id for meta in first} - {meta.session_id for meta in again} == {"session-1"}
    assert {meta.session_id: meta.seq for meta in again}["session-2"] == 2


async def test_first_list_of_another_machine_does_not_read_each_session(server: S3Server) -> None:
    """Their writer leaves what a list shows of them; rows of sessions that changed since are not used."""
    async with open_store(URL) as writer:
        for number in range(300):
            await writer.save(make_snapshot("a", session_id=f"session-{number}"))
    async with open_store(URL) as later:
        await later.save((await later.load("session-7")).append(make_snapshot("b").messages[0]))
    server.requests.clear()
    async with open_store(URL) as another:
        listed = await another.list()
    assert _sessions_read(server) == ["some/where/sessions/session-7"]
    assert {meta.session_id: meta.seq for meta in listed} == {
        f"session-{number}": 2 if number == 7 else 1 for number in range(300)
    }
    assert [key for key in server.objects if "/recent/" in key] == [], "the list has made one index of them"


async def test_writer_of_an_unlisted_store_leaves_few_objects_behind(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_index, "_BATCH", 16)
    monkeypatch.setattr(ledger_index, "_LEFT", 8)
    async with open_store(URL) as store:
        for number in range(16 * 12):
            await store.save(make_snapshot("a", session_id=f"session-{number}"))
        assert len([key for key in server.objects if "/recent/" in key]) == 8
        assert len(await store.list()) == 16 * 12


@pytest.mark.parametrize("reads", ["check", "search"])
async def test_sessions_are_checked_and_indexed_with_parallel_requests(
    server: S3Server, tmp_path: Path, reads: str
) -> None:
    """The first request for a session is answered once another session was asked for as well."""
    asked, both, alone = set[str](), threading.Event(), list[str]()

    def answer_together(request: Request) -> None:
        if request.method == "GET" and "sessions/session-" in request.key:
            asked.add(request.key)
            if len(asked) > 1:
                both.set()
            if not both.wait(_PATIENCE):
                alone.append(request.key)

    async with open_store(URL) as store, opened_index(store, tmp_path, name=URL) as index:
        for number in range(4):
            await store.save(make_snapshot("a", session_id=f"session-{number}"))
        metas = await store.list()
        server.fault = answer_together
        if reads == "check":
            assert (await store.check()).sessions == 4
        else:
            assert (await index.ask(lambda _: True, metas))[1] == ()
    assert (len(asked), alone) == (4, [])


def _sessions_read(server: S3Server) -> list[str]:
    return [r.key for r in server.requests if r.method == "GET" and "sessions/session" in r.key]


@pytest.mark.parametrize("index", [b"", b"no index", b'{"format":9}\n', b'{"format":1,"rows":[["a"]]}\n'])
async def test_damaged_index_is_ignored(server: S3Server, index: bytes) -> None:
    async with open_store(URL) as store:
        await store.save(make_snapshot("a"))
        server.objects["some/where/index"] = server.objects["some/where/recent/0"] = index
        assert [meta.session_id for meta in await store.list()] == ["session"]


async def test_service_without_atomic_conditions_is_refused_before_creation(server: S3Server) -> None:
    """It honours conditions of one writer after the other, and lets eight at once make the same object."""
    server.race = threading.Barrier(8)
    with pytest.raises(InvalidInput, match="8 writers"):
        await open_store(URL).save(make_snapshot("a"))
    assert list(server.objects) == []


async def test_service_that_needs_unquoted_etags_gets_them(server: S3Server) -> None:
    server.wants_bare_tags = True
    async with open_store(URL) as store:
        for texts in ("a", "ab", "abc"):
            await store.save(make_snapshot(*texts))
        assert await store.load("session") == make_snapshot("a", "b", "c")


async def test_service_that_refuses_a_correct_etag_is_refused(server: S3Server) -> None:
    store = open_store(URL)
    await store.list()
    server.fault = lambda request: "in progress" if request.method == "PUT" else None
    with pytest.raises(InvalidInput, match="tag is right"):
        await store.save(make_snapshot("a"))


def test_threads_that_begin_together_check_the_conditions_once(server: S3Server) -> None:
    """Where each write makes another version, as on Azure and Google, several checks would refuse each other."""
    url = f"gs://{BUCKET}/some/where"
    with open_store(url).sync as store:
        store.save(make_snapshot("a"))
    server.requests.clear()
    begin = threading.Barrier(8)

    def save(store: SyncStore, number: int) -> None:
        begin.wait(60)
        store.save(make_snapshot("a", session_id=f"s{number}"))

    with open_store(url).sync as store, ThreadPoolExecutor(8) as threads:
        for saved in [threads.submit(save, store, number) for number in range(8)]:
            saved.result(60)
    checks = [each for each in server.requests if each.method == "PUT" and each.key.endswith("STORE.json")]
    assert len(checks) == 3


async def test_checks_of_other_machines_are_not_taken_for_refusals(server: S3Server) -> None:
    url = f"gs://{BUCKET}/some/where"
    async with open_store(url) as store:
        await store.save(make_snapshot("a"))
    faster = iter(range(10))

    def moved_by_others(request: Request) -> None:
        if request.method == "PUT" and request.key.endswith("STORE.json") and next(faster, None) is not None:
            server.generations[request.key] += 2

    server.fault = moved_by_others
    async with open_store(url) as store:
        assert (await store.save(make_snapshot("a", session_id="other"))).seq == 1


async def test_machines_creating_a_store_at_once_wait_for_each_other(server: S3Server) -> None:
    refusals = iter(["in progress"] * 12)
    server.fault = lambda request: next(refusals, None) if request.method == "PUT" else None
    assert (await open_store(URL).save(make_snapshot("a"))).seq == 1


async def test_expired_token_is_forbidden_and_reported_without_xml(server: S3Server) -> None:
    server.fault = lambda _request: "expired"
    with pytest.raises(StoreForbidden, match="ExpiredToken") as refused:
        await open_store(URL).list()
    assert not refused.value.retryable
    assert "<" not in str(refused.value)


async def test_html_page_in_place_of_an_object_is_not_damage(server: S3Server) -> None:
    await open_store(URL).save(make_snapshot("a"))
    server.fault = lambda _request: "web page"
    with pytest.raises(StoreUnavailable, match="web page") as refused:
        await open_store(URL).load("session")
    assert refused.value.retryable


async def test_service_without_conditional_writes_is_refused(server: S3Server) -> None:
    server.fault = lambda request: "not implemented" if request.method == "PUT" else None
    with pytest.raises(InvalidInput, match="NotImplemented"):
        await open_store(URL).save(make_snapshot("a"))


def test_every_failure_is_an_error_of_this_package(server: S3Server) -> None:
    """Every request of a small life fails once, in each way: what gets out is always a `SnapshotError`."""
    failures: list[SnapshotError] = []
    for kind in ("forbidden", "slow down", "lost"):
        for number in range(30):
            asked = len(server.requests) + number

            def once(_request: Request, asked: int = asked, kind: str = kind) -> str | None:
                return kind if len(server.requests) == asked + 1 else None

            server.fault = once
            try:
                with open_store(f"{URL}/{kind.split()[0]}-{number}").sync as store:
                    store.save(make_snapshot("a"))
                    store.save(make_snapshot("a", "b"))
                    store.list()
                    store.delete("session")
                    store.purge()
                    store.trash()
            except SnapshotError as error:
                failures.append(error)
    assert {type(error) for error in failures} == {StoreForbidden, StoreUnavailable}
