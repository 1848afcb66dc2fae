"""The control socket: the owner answers its own user, briefly; everybody else gets nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import InvalidInput, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.manager import control
from snapshot_plugin.manager.control import MAX_LINE, Answer, Handler, ask_owner, serve_control
from tests.manager.processes import PATIENCE, heard, python, tell

pytestmark = pytest.mark.anyio

SINCE = datetime(2026, 11, 16, tzinfo=UTC)
REQUEST = {"op": "snapshot", "session_id": "s", "tag": "pre-deploy"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short name, wherever the tests run: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="asnap-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def runtime(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"heard": request}


@asynccontextmanager
async def serving(handler: Handler, runtime: dict[str, str], name: str = "m") -> AsyncIterator[Path]:
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            path = await tasks.start(partial(serve_control, handler, name=name, environ=runtime))
            yield path
            tasks.cancel_scope.cancel()


def owner_at(path: Path | str | None) -> Owner:
    return Owner.this_process(since=SINCE, control=None if path is None else str(path))


async def ask(path: Path | str | None, request: dict[str, Any] = REQUEST, timeout: float = PATIENCE) -> Answer:  # noqa: ASYNC109 — handed on
    return await ask_owner(owner_at(path), request, timeout=timeout)


async def sent_raw(path: Path, data: bytes) -> bytes:
    """What comes back for bytes no client of ours would send."""
    answer = b""
    async with await anyio.connect_unix(path) as stream:
        try:
            await stream.send(data)
            await stream.send_eof()
            async for chunk in stream:
                answer += chunk
        except anyio.BrokenResourceError:
            pass  # the server may hang up before everything was sent
    return answer


# --- answers -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MANAGER-CONTROL-ASK")
async def test_the_owner_answers_a_request(runtime: dict[str, str]) -> None:
    async with serving(echo, runtime) as path:
        assert await ask(path) == Answer(outcome="done", result={"heard": REQUEST})


async def test_several_clients_are_served_concurrently(runtime: dict[str, str]) -> None:
    everybody_here = anyio.Event()
    waiting = 0

    async def meet(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == 5:
            everybody_here.set()
        await everybody_here.wait()
        return {}

    async with serving(meet, runtime) as path, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask, path)


async def test_handler_error_becomes_a_refusal_and_the_server_continues(runtime: dict[str, str]) -> None:
    async def fail(request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "missing":
            raise SnapshotNotFound("no such session")
        if request["op"] == "not json":
            return {"x": object()}
        if request["op"] == "huge":
            return {"x": "y" * MAX_LINE}
        raise RuntimeError("x" * 2 * MAX_LINE)

    async with serving(fail, runtime) as path:
        answers = [await ask(path, {"op": op}) for op in ("missing", "not json", "huge", "crash", "missing")]
    assert [answer.outcome for answer in answers] == ["refused"] * 5
    codes = ["snapshot_not_found", "invalid_input", "invalid_input", "failure", "snapshot_not_found"]
    assert [answer.code for answer in answers] == codes


@pytest.mark.parametrize(
    "line", [b"\n", b"no json\n", b"[1]\n", b"\xff\xfe\n", b"[" * 60_000 + b"\n", b"x" * (MAX_LINE + 1) + b"\n"]
)
async def test_malformed_request_is_refused_and_the_server_continues(runtime: dict[str, str], line: bytes) -> None:
    async with serving(echo, runtime) as path:
        answer = await sent_raw(path, line)
        assert not answer or json.loads(answer)["code"] == "invalid_input"
        assert (await ask(path)).outcome == "done"


async def test_clients_that_hang_up_early_do_not_stop_the_server(runtime: dict[str, str]) -> None:
    async with serving(echo, runtime) as path:
        for data in (b"", b'{"half'):
            assert await sent_raw(path, data) == b""
        for _ in range(3):
            async with await anyio.connect_unix(path) as stream:
                await stream.send(json.dumps(REQUEST).encode() + b"\n")
        assert (await ask(path)).outcome == "done"


async def test_request_of_a_client_that_gave_up_is_not_executed(runtime: dict[str, str]) -> None:
    carried_out: list[dict[str, Any]] = []

    async def note(request: dict[str, Any]) -> dict[str, Any]:
        carried_out.append(request)
        return request

    async with serving(note, runtime) as path:
        with socket.socket(socket.AF_UNIX) as client:  # closed before the server runs
            client.connect(str(path))
            client.sendall(json.dumps({"op": "too late"}).encode() + b"\n")
        assert (await ask(path)).outcome == "done"
    assert carried_out == [REQUEST]


async def test_silent_clients_are_dropped_to_serve_others(
    runtime: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_REQUEST_TIMEOUT", 0.05)
    async with serving(echo, runtime) as path:
        silent = [await anyio.connect_unix(path) for _ in range(control._MAX_CLIENTS)]
        await anyio.wait_all_tasks_blocked()
        monkeypatch.undo()  # the next client may take its time
        assert (await ask(path)).outcome == "done"
        for stream in silent:
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            await stream.aclose()


async def test_a_request_too_long_or_not_json_is_refused_before_it_is_sent() -> None:
    for request in ({"x": "y" * MAX_LINE}, {"x": object()}, {"x": float("nan")}):
        with pytest.raises(InvalidInput):
            await ask("/nowhere", request)


# --- nobody there ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MANAGER-CONTROL-SILENT")
async def test_owner_without_a_usable_socket_is_unreachable(tmp_path: Path, runtime: dict[str, str]) -> None:
    elsewhere = owner_at(tmp_path / "s").evolve(host="another-machine")
    (tmp_path / "file").touch()
    answers = [
        await ask_owner(elsewhere, REQUEST, timeout=PATIENCE),
        await ask(None),
        await ask(tmp_path / "missing"),
        await ask(tmp_path / "file"),
        await ask("/" + "x" * 200),
        await ask("a\0b"),
    ]
    assert [answer.outcome for answer in answers] == ["unreachable"] * 6
    assert all(answer.reason for answer in answers)


@pytest.mark.requirement("MANAGER-CONTROL-SILENT")
async def test_an_owner_that_does_not_answer_in_time_is_unreachable(runtime: dict[str, str]) -> None:
    async def hang(request: dict[str, Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        return {}

    async with serving(hang, runtime) as path:
        assert (await ask(path, timeout=0.05)).outcome == "unreachable"


@pytest.mark.parametrize(
    "line",
    [b"", b"half", b"no json\n", b"[]\n", b'{"ok":true,"result":[1]}\n', b'{"ok":false,"code":7}\n', b"x" * 70_000],
)
async def test_malformed_answer_counts_as_no_answer(tmp_path: Path, line: bytes) -> None:
    async def babble(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(line or b"\n")

    with anyio.fail_after(PATIENCE):
        listener = await anyio.create_unix_listener(tmp_path / "s")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, babble)
            assert (await ask(tmp_path / "s")).outcome == "unreachable"
            tasks.cancel_scope.cancel()


def neighbours(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


async def test_killed_owner_is_unreachable_and_its_socket_is_removed(runtime: dict[str, str]) -> None:
    code = """
        import functools, json, sys, anyio
        from snapshot_plugin.manager.control import serve_control
        async def main():
            async with anyio.create_task_group() as tasks:
                start = functools.partial(serve_control, None, name="dead", environ=json.loads(sys.argv[1]))
                print(await tasks.start(start), flush=True)
        anyio.run(main)
    """
    with python(code, json.dumps(runtime)) as process:
        dead = Path(heard(process))
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    assert (await ask(dead)).outcome == "unreachable"
    async with serving(echo, runtime, "young"):
        assert dead in neighbours(dead)  # as young as it is, it might be about to listen
    os.utime(dead, (1, 1))
    async with serving(echo, runtime, "one") as living:
        assert dead not in neighbours(dead)
        os.utime(living, (1, 1))
        async with serving(echo, runtime, "two"):
            assert (await ask(living)).outcome == "done"


# --- only for this user ------------------------------------------------------------------------------------------


async def test_directory_and_socket_are_private_and_removed_on_close(
    runtime: dict[str, str], tmp_path: Path
) -> None:
    async with serving(echo, runtime) as path:
        assert path.parent == tmp_path / "asnap"
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("spoil", ["open to all", "a link", "a file", "missing parent", "too long"])
async def test_directory_not_private_to_us_is_skipped(tmp_path: Path, spoil: str) -> None:
    runtime, fallback = tmp_path / "run", tmp_path / "tmp"
    runtime.mkdir()
    fallback.mkdir()
    place = runtime / "asnap"
    if spoil == "open to all":
        place.mkdir()
        place.chmod(0o755)
    elif spoil == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif spoil == "a file":
        place.touch(mode=0o600)
    elif spoil == "missing parent":
        runtime.rmdir()
    else:
        runtime = runtime / ("x" * 80)
        runtime.mkdir()
    async with serving(echo, {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(fallback)}) as path:
        assert path.parent == fallback / f"asnap-{os.geteuid()}"
        assert (await ask(path)).outcome == "done"


async def test_without_a_private_directory_there_is_no_socket(
    monkeypatch: pytest.MonkeyPatch, runtime: dict[str, str]
) -> None:
    monkeypatch.setattr(control, "_is_private", lambda _directory: False)
    with pytest.raises(StoreUnavailable):
        await serve_control(echo, name="m", environ=runtime)


STRANGER = """
    import os, socket, sys
    path, role = sys.argv[1:]
    mine = socket.socket(socket.AF_UNIX)
    if role == "server":
        mine.bind(path)
        os.chmod(path, 0o777)
    os.setuid(65534)
    if role == "server":
        mine.listen()
        print("ready", flush=True)
        other, _ = mine.accept()
        print(other.makefile().readline() or "nothing", flush=True)
    else:
        mine.connect(path)
        try:
            mine.sendall(b'{"op": "snapshot"}\\n')
            print(mine.recv(99) or "nothing", flush=True)
        except OSError:
            print("nothing", flush=True)
"""


@needs_root
async def test_process_of_another_user_is_refused_even_if_file_modes_allow_it(
    runtime: dict[str, str], tmp_path: Path
) -> None:
    asked = []

    async def listen(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {}

    async with serving(listen, runtime) as path:
        reachable = Path("/tmp") / f"asnap-test-{os.getpid()}"  # tmp_path lies behind private directories
        reachable.mkdir(mode=0o755)
        try:
            path.chmod(0o777)
            os.link(path, reachable / "s")
            with python(STRANGER, reachable / "s", "client") as stranger:
                assert await anyio.to_thread.run_sync(heard, stranger) == "nothing"
        finally:
            (reachable / "s").unlink()
            reachable.rmdir()
    assert asked == []


@needs_root
async def test_socket_of_another_user_is_not_contacted(tmp_path: Path) -> None:
    with python(STRANGER, tmp_path / "s", "server") as stranger:
        assert await anyio.to_thread.run_sync(heard, stranger) == "ready"
        assert (await ask(tmp_path / "s")).outcome == "unreachable"
        assert await anyio.to_thread.run_sync(heard, stranger) == "nothing"


async def test_server_survives_running_out_of_file_descriptors(runtime: dict[str, str], anyio_backend: str) -> None:
    code = """
        import functools, json, resource, sys, anyio
        from snapshot_plugin.manager.control import serve_control
        async def echo(request):
            return request
        async def main():
            import anyio.to_thread
            async with anyio.create_task_group() as tasks:
                start = functools.partial(serve_control, echo, name="m", environ=json.loads(sys.argv[1]))
                path = await tasks.start(start)
                hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
                print(path, flush=True)
                await anyio.to_thread.run_sync(sys.stdin.readline)
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        anyio.run(main, backend=sys.argv[2])
    """
    with python(code, json.dumps(runtime), anyio_backend) as process:
        path = await anyio.to_thread.run_sync(heard, process)
        assert (await ask(path, timeout=0.1)).outcome == "unreachable"
        tell(process, "enough")
        assert (await ask(path)).outcome == "done"
