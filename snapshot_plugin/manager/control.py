"""Requests to the process that owns a session: one private socket per manager, one JSON line each way.

Both ends accept only processes of the same user: the directory is private, and each end asks the kernel for the
peer's credentials. Sizes and waits are bounded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from snapshot_plugin.errors import InvalidInput, SnapshotError, StoreUnavailable
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.rows import RowPlace
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.value import JsonObject, Value
from snapshot_plugin.system import sockets

__all__ = ["Answer", "Handler", "ask_elsewhere", "ask_owner", "serve_control"]

_log = logging.getLogger(__name__)

MAX_LINE: Final = 64 * 1024
"""The longest request and the longest answer, in bytes."""

_MAX_PATH: Final = 100  # macOS ends at 103, Linux at 107
_MAX_CLIENTS: Final = 16
_REQUEST_TIMEOUT: Final = 5.0
_ACCEPT_PAUSE: Final = 0.2
_MAX_REASON: Final = 1000
_SETTLED: Final = 60  # seconds; a socket younger than that may be about to listen

_CALL_FAILED: Final = (
    OSError,  # no listener, or no permission
    anyio.BrokenResourceError,  # hung up
    anyio.IncompleteRead,  # hung up in mid-line
    anyio.DelimiterNotFound,  # a line without end
    ValueError,  # not JSON, or not the shape of an answer
    RecursionError,  # JSON nested without end
)

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Carries out a request and returns the result. An exception is sent back as a refusal."""


class Answer(Value):
    """The outcome of a request to the owner.

    ``done``: `result` is what the owner returned. ``refused``: `code` and `reason` are its error. ``unreachable``:
    no owner could be contacted, or no answer came; the request may or may not have been carried out.
    """

    outcome: Literal["done", "refused", "unreachable"]
    result: JsonObject = FrozenDict()
    code: str | None = None
    reason: str | None = None


async def serve_control(
    handler: Handler,
    *,
    name: str,
    environ: Mapping[str, str] = os.environ,
    task_status: TaskStatus[Path] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests until cancelled, then remove the socket. Starts with its path: ``await tasks.start(…)``.

    Args:
        handler: called for each request, several at a time.
        name: unique for this manager, e.g. a new id.
        environ: where ``XDG_RUNTIME_DIR`` is looked up.
        task_status: gets the path of the socket once it accepts connections.

    Raises:
        StoreUnavailable: there is no private directory for the socket.
    """
    path = await anyio.to_thread.run_sync(_socket_path, name, environ)
    try:
        listener = await anyio.create_unix_listener(path, mode=0o600)
        await anyio.to_thread.run_sync(_sweep, path)
    except OSError as error:
        raise StoreUnavailable(f"the control socket {path} could not be opened: {error.strerror}") from error
    try:
        async with listener, anyio.create_task_group() as clients:
            task_status.started(path)
            await _accept(listener, clients, handler)
    finally:
        path.unlink(missing_ok=True)


async def ask_owner(
    owner: Owner,
    request: Mapping[str, Any],
    *,
    timeout: float,  # noqa: ASYNC109 — part of the promise, reported when over
    place: object = None,
) -> Answer:
    """Send *request* to the process that owns a session, and wait for its answer at most *timeout* seconds.

    An owner on another machine is asked through *place*, where that is a database that both use. Never raises
    because of the other side; see `Answer`.

    Raises:
        InvalidInput: *request* is not JSON, or longer than 64 KiB.
    """
    line = _line(request)
    if not owner.is_here:
        session_id = str(request.get("session_id"))
        return (await ask_elsewhere({session_id: owner}, {session_id: request}, timeout=timeout, place=place))[
            session_id
        ]
    if owner.control is None:
        return _unreachable("it has no control socket")
    try:
        with anyio.fail_after(timeout):
            return await _ask(owner.control, line)
    except TimeoutError:
        return _unreachable(f"no answer within {timeout:g} s")
    except _CALL_FAILED as error:
        return _unreachable(f"{type(error).__name__}: {error}")


async def ask_elsewhere(
    owners: Mapping[str, Owner],
    requests: Mapping[str, Mapping[str, Any]],
    *,
    timeout: float,  # noqa: ASYNC109 — part of the promise, reported when over
    place: object,
) -> dict[str, Answer]:
    """Send all *requests*, by session, to *owners* on other machines at once, and wait at most *timeout* seconds.

    They are sent through *place*, where that is a database. Never raises because of the other side; see `Answer`.
    """
    if not isinstance(place, RowPlace):
        return {name: _unreachable(f"it runs on {owners[name].host}") for name in requests}
    lines = {name: _line({**request, "asked": new_id()}).decode().strip() for name, request in requests.items()}
    try:
        answers = await anyio.to_thread.run_sync(functools.partial(place.ask, lines, seconds=timeout))
    except SnapshotError as error:
        return {name: _unreachable(f"it runs on {owners[name].host}: {error}") for name in requests}
    return {name: _told(owners[name], answers.get(name), timeout) for name in requests}


# --- the asking side ---------------------------------------------------------------------------------------------


async def _ask(path: str, line: bytes) -> Answer:
    async with await anyio.connect_unix(path) as stream:
        if not _is_same_user(stream):
            return _unreachable("the socket belongs to another user")
        await stream.send(line)
        return _understood(await _receive(stream))


def _told(owner: Owner, answer: str | None, seconds: float) -> Answer:
    if answer is None:
        return _unreachable(f"it runs on {owner.host}, and did not answer within {seconds:g} s")
    try:
        return _understood(json.loads(answer))
    except (ValueError, AttributeError) as error:  # not JSON, or not an object
        return _unreachable(f"it runs on {owner.host}: {error}")


def _understood(answer: Mapping[str, Any]) -> Answer:
    if answer.get("ok") is True:
        return Answer.model_validate({"outcome": "done", "result": answer.get("result")})
    return Answer.model_validate(
        {"outcome": "refused", "code": answer.get("code"), "reason": answer.get("message")}
    )


def _unreachable(reason: str) -> Answer:
    return Answer(outcome="unreachable", reason=reason)


# --- the answering side ------------------------------------------------------------------------------------------


async def _accept(listener: SocketListener, clients: TaskGroup, handler: Handler) -> None:
    free = anyio.Semaphore(_MAX_CLIENTS)

    async def serve(stream: SocketStream) -> None:
        try:
            async with stream:
                await _serve_client(stream, handler)
        finally:
            free.release()

    while True:
        await free.acquire()
        try:
            stream = await listener.accept()
        except anyio.BrokenResourceError as error:  # for example out of file descriptors, which is temporary
            free.release()
            _log.warning("the control socket could not accept: %s", error.__cause__)
            await anyio.sleep(_ACCEPT_PAUSE)
        else:
            clients.start_soon(serve, stream)


async def _serve_client(stream: SocketStream, handler: Handler) -> None:
    if not _is_same_user(stream):
        _log.warning("a process of another user tried the control socket")
        return
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.IncompleteRead):  # the client has gone
        await stream.send(await _answer(stream, handler))


async def _answer(stream: SocketStream, handler: Handler) -> bytes:
    try:
        with anyio.fail_after(_REQUEST_TIMEOUT):
            request = await _receive(stream)
    except (anyio.DelimiterNotFound, ValueError, RecursionError):
        return _refusal(InvalidInput(f"a request is one line of JSON, an object, at most {MAX_LINE} bytes"))
    if _is_gone(stream):  # this process was stopped meanwhile, and the client has reported a timeout
        raise anyio.BrokenResourceError
    try:
        return _line({"ok": True, "result": await handler(request)})
    except SnapshotError as error:
        return _refusal(error)
    except Exception as error:  # noqa: BLE001 — a request must not end the server
        _log.exception("a control request failed")
        return _refusal(SnapshotError(f"{type(error).__name__}: {error}"))


def _refusal(error: SnapshotError) -> bytes:
    return _line({"ok": False, "code": error.code, "message": str(error)[:_MAX_REASON]})


# --- both sides --------------------------------------------------------------------------------------------------


def _line(message: Mapping[str, Any]) -> bytes:
    try:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a control message is not JSON: {error}") from error
    if len(line) > MAX_LINE:
        raise InvalidInput(f"a control message of {len(line)} bytes is over the limit of {MAX_LINE}")
    return line


async def _receive(stream: SocketStream) -> dict[str, Any]:
    message = json.loads(await BufferedByteReceiveStream(stream).receive_until(b"\n", MAX_LINE))
    if not isinstance(message, dict):
        raise ValueError("not an object")  # noqa: TRY004 — treated as bad JSON is
    return message


def _is_gone(stream: SocketStream) -> bool:
    """Whether the other end has been closed."""
    return sockets.is_hung_up(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 — no database in sight here


def _is_same_user(stream: SocketStream) -> bool:
    """Whether the process at the other end runs as this user, according to the kernel."""
    return sockets.is_same_user(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 — no database in sight here


# --- where the socket is -----------------------------------------------------------------------------------------


def _socket_path(name: str, environ: Mapping[str, str]) -> Path:
    sockets.require()
    for directory in _places(environ):
        path = directory / f"{name}.sock"
        if len(os.fsencode(path)) <= _MAX_PATH and _is_private(directory):
            return path
    raise StoreUnavailable(
        "there is no place for a control socket that only this user can reach",
        hint="set XDG_RUNTIME_DIR to a short path of a directory of your own",
    )


def _places(environ: Mapping[str, str]) -> list[Path]:
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    temporary = [Path(environ.get("TMPDIR", "/tmp")), Path("/tmp")]  # noqa: S108 — checked to be ours below
    own = [runtime / "asnap"] if runtime.is_absolute() else []
    return own + [place / f"asnap-{os.geteuid()}" for place in temporary if place.is_absolute()]


def _is_private(directory: Path) -> bool:
    """Create *directory* if needed; True if it is ours, not a symlink, and private."""
    try:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _sweep(ours: Path) -> None:
    """Remove the sockets that killed processes left behind."""
    newest_of_old = ours.stat().st_mtime - _SETTLED
    for path in ours.parent.glob("*.sock"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < newest_of_old and sockets.is_dead(str(path)):
                path.unlink()
