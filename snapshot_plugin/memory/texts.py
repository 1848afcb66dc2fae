"""Read the text that agents pass on: stack traces, lines of logs, regular expressions."""

from __future__ import annotations

import re
from typing import Final

from snapshot_plugin.memory.kinds import METHODS, Entry

__all__ = ["TOOK", "fingerprint_in", "pattern_in", "request_in"]

_NAMED: Final = r"[A-Za-z_]\w*(?:Error|Exception|Warning)"
_TYPE: Final = re.compile(rf"(?m)^\s*(?:Uncaught\s+)?({_NAMED})\b|\b({_NAMED})(?=:)")
_REQUEST: Final = re.compile(rf"(?:^|[\s\"'])(?:(?i:({'|'.join(METHODS)}|wss?))\s+)?((?:/|https?://)[^\s\"',;]*)")
TOOK: Final = re.compile(r"\d[\d.,]*\s?(?:[mµun]?s|m?secs?|(?:milli|micro)?seconds?)\b")
"""A duration with its unit."""
_REGEX: Final = re.compile(
    r"(?:\\[dwsDWS]|\[(?:\\.|[^\]\\])+\]|\((?:\\.|[^()\\])*\)|\.)(?:[*+?]|\{[\d,]*\})?|\\(.)|.[*?]|.\{[\d,]*\}|\+"
)


def fingerprint_in(found: Entry, trace: str) -> str:
    """A fingerprint such as ``TypeError_app.js:42``; the message itself if type and place are missing."""
    text = found.get("message", "")
    if re.fullmatch(r"\w*(?:Error|Exception|Warning)_\S+", text):
        return str(text)
    said = f"{text}\n{trace}"
    frames = re.findall(r'File "[^"]*?([^"/]+)", line (\d+)', said)  # Python's: the last one is where it was raised
    typed = [first or second for first, second in _TYPE.findall(said)][-1 if frames else 0 :]
    placed = frames[-1:] + re.findall(r"([\w.-]+\.[A-Za-z]\w{0,4})[:(](\d+)", said)
    kind, where, line = found.get("type") or next(iter(typed), None), found.get("file"), found.get("line")
    if where is None and placed:
        where, line = placed[0]
    if where:
        is_file = re.search(r"\.\w{1,5}(?::\d+)*$", where)
        place = where.rpartition("/")[2] if is_file and "://" not in where else where
        return f"{kind or 'Error'}_{place}{'' if line is None else f':{line}'}"
    words = " ".join(text.split())[:120]
    return words if words and (not kind or kind in words) else ": ".join(filter(None, (kind, words)))


def request_in(text: str) -> tuple[str, Entry]:
    """The endpoint that a line of text names, and the status and the time after it. All of it if none is found."""
    said = _REQUEST.search(text)
    if said is None:
        return text, {}
    after = re.sub(r'^[\s":=→>-]+|HTTP/[\d.]+"?', "", text[said.end() :])
    status, took = re.search(r"\b[1-5]\d\d\b(?!\s*[a-zµ])", after), TOOK.search(after)
    told = {"status": status and status[0], "ms": took and took[0]}
    about = re.sub(r"\btook\b", "", TOOK.sub("", after))
    found = {**told, "summary": after if re.search(r"[a-z]{2}", about) else None}
    return f"{said[1] or ''} {said[2].rstrip(':')}".strip(), {f: v for f, v in found.items() if v}


def pattern_in(pattern: str, *, is_regex: bool) -> str:
    """*pattern* with what only a regular expression means replaced by ``*``; a plain pattern unchanged."""
    slashed = re.fullmatch(r"/(?=.*[\\^$.*+?()|\[])(.+)/[dgimsuvy]*", pattern)  # a path has none of these
    if not (is_regex or slashed or re.search(r"\\[dwsbDWS.\[(]|\(\?|\.[*+]|^\^|\$$", pattern)):
        return pattern
    bare = re.sub(r"^\(\?\w+\)|^\^|(?<!\\)\$$|\\b", "", slashed[1] if slashed else pattern)
    return re.sub(r"\*+", "*", _REGEX.sub(lambda part: part[1] or ("" if part[0] == "+" else "*"), bare))
