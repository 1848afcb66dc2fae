"""Changes to a session during a transfer: other paths, another id.

Each edit works on the lines of the snapshots, so it touches only the lines that change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snapshot_plugin.codec.document import encoded_line, parsed, plain_digest, section_line
from snapshot_plugin.errors import InvalidSnapshot, SnapshotCorrupted
from snapshot_plugin.manager.working_memory import memory_id
from snapshot_plugin.store.transfer import Copied, with_roots

__all__ = ["Line", "edited", "moved", "renamed"]

Line = dict[str, Any]
Edit = Callable[[Line], Line]


def moved(copies: Sequence[Copied], paths: Mapping[str, str]) -> list[Copied]:
    """The session with its directories remapped: each path at or below a key of *paths* is moved.

    Only the settings change (``cwd`` and additional directories). Messages are not changed.
    """

    def edit(line: Line) -> Line:
        if line.get("section") == ["config"] and isinstance(line.get("value"), dict):
            return {**line, "value": _moved_config(line["value"], paths)}
        if isinstance(line.get("meta"), dict):
            return {"meta": _moved_config(line["meta"], paths)}
        return line

    return edited(copies, edit)


def _moved_config(config: Line, paths: Mapping[str, str]) -> Line:
    out = dict(config)
    for name in ("cwd", "working_dir"):  # the second is what version 1 calls it
        if isinstance(out.get(name), str):
            out[name] = _moved_path(out[name], paths)
    more = out.get("additional_directories")
    if isinstance(more, list):
        out["additional_directories"] = [_moved_path(p, paths) if isinstance(p, str) else p for p in more]
    return out


def _moved_path(path: str, paths: Mapping[str, str]) -> str:
    for old in sorted(paths, key=len, reverse=True):  # the closest one counts
        start = old.rstrip("/")
        if path == old or path.rstrip("/") == start or path.startswith(start + "/"):
            return paths[old].rstrip("/") + path.removeprefix(start) or "/"
    return path


def renamed(copies: Sequence[Copied], session_id: str) -> list[Copied]:
    """The session under another id; where it names the session that holds its memory, that has the new id, too."""
    before = copies[0].header.sid
    instead: dict[Any, str] = {before: session_id, memory_id(before): memory_id(session_id)}

    def edit(line: Line) -> Line:
        pin = line.get("value")
        if line.get("section") == ["metadata", "working_memory"] and isinstance(pin, dict):
            named = pin.get("session_id")
            return {**line, "value": {**pin, "session_id": instead.get(named, named)}}
        return line

    return [Copied(header._replace(sid=session_id), payload) for header, payload in edited(copies, edit)]


def edited(copies: Sequence[Copied], edit: Edit) -> list[Copied]:
    """The snapshots with every line changed by *edit*, and the roots that go with it."""
    changed = [Copied(header, _edited_payload(payload, edit)) for header, payload in copies]
    return _with_roots_of_their_own(changed)


def _with_roots_of_their_own(copies: Sequence[Copied]) -> list[Copied]:
    # The base of each snapshot has a new root, so the old roots no longer apply.
    whole = [Copied(copy.header._replace(prev="", root=""), copy.payload) for copy in copies]
    return list(with_roots(whole, plain_digest))


def _edited_payload(payload: bytes, edit: Edit) -> bytes:
    return b"\n".join([_edited_line(line, edit) for line in payload.split(b"\n")[:-1]] + [b""])


def _edited_line(line: bytes, edit: Edit) -> bytes:
    try:
        before = parsed(line)
        after = edit(before)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidSnapshot):
            raise
        raise SnapshotCorrupted("a snapshot's content is not the JSON it should be") from error
    if after == before:
        return line
    if "value" in after:
        return section_line(after["section"], after["value"])
    return encoded_line(after)
