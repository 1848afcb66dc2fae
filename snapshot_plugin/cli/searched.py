"""How ``search`` says what it found."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.searching import MessageHit, Searched, SessionHits, at_snapshot, jump_to
from snapshot_plugin.operations.text import ago, cut, pad, plain, width

__all__ = ["ToldSearched"]

_SESSION = "session"


class ToldSearched(Searched):
    """What was found, as a person sees it."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        for session in self.sessions:
            found_in = (session.session_id, session.snapshot)
            hits = [hit for hit in self.hits if (hit.session_id, hit.snapshot) == found_in]
            if hits and out.is_terminal:
                self._show_session(out, session, hits)
            for hit in () if out.is_terminal else hits:
                out.line("\t".join(_cells(hit, session)))
        out.note(self._footer(), dim=True)
        if self.query.isupper() and "NOT" in self.query.split():  # 404 NOT FOUND: capitals may be plain words
            out.note(
                f"words after NOT were excluded; to search for the whole text: asnap search {_phrase(self.query)}"
            )

    def _show_session(self, out: Output, session: SessionHits, hits: Sequence[MessageHit]) -> None:
        name = plain(session.title or "") or "(untitled)"
        about = " · ".join(filter(None, (plain(session.agent or ""), ago(session.changed_at, self.as_of))))
        short, told = plain(session.short_id), cut(f"{name} · {about}", out.columns - len(session.short_id) - 2)
        out.line(f"{out.style(short, fg='cyan', bold=True)}  {out.style(told, bold=True)}")
        for hit in hits:
            head = f"  {pad(str(hit.message or ''), 5, right=True)} {pad(hit.role or _SESSION, 10)}"
            out.line(head + _marked(hit, out, out.columns - width(head)))
            out.line(f"{' ' * 8}{jump_to(session.short_id, hit.message)}", dim=True)
        if session.hits > len(hits):
            all_of_them = f"asnap search {_quoted(self.query)} {_quoted(session.short_id)}"
            out.line(f"{' ' * 8}{session.hits - len(hits)} more: {all_of_them}", dim=True)

    def _footer(self) -> str:
        found = f"{_number(self.total_hits, 'hit')} in {_number(self.total_sessions, 'session')}"
        parts = [f"{found} of {self.searched} searched"]
        if len(self.hits) < self.total_hits:
            parts.append(f"{len(self.hits)} shown; --limit shows more")
        if self.hidden:
            parts.append("not searched: " + ", ".join(f"{count} by {by}" for by, count in self.hidden.items()))
        return " · ".join(parts)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _quoted(text: str) -> str:
    return shlex.quote(plain(text))


def _phrase(query: str) -> str:
    words = query.replace('"', " ")
    return _quoted(f'"{words}"')


def _cells(hit: MessageHit, session: SessionHits) -> tuple[str, ...]:
    """For programs that cut fields out: whole ids, exact times, matches between stars."""
    when = (hit.at or session.changed_at).isoformat(timespec="seconds")
    text = "".join(f"**{part}**" if is_match else part for part, is_match in _parts(hit))
    return at_snapshot(hit.session_id, hit.snapshot), str(hit.message or ""), hit.role or _SESSION, when, text


def _parts(hit: MessageHit, start: int = 0) -> Iterator[tuple[str, bool]]:
    """The snippet from *start* on, match by match."""
    for first, last in hit.matches:
        yield hit.snippet[start:first], False
        yield hit.snippet[first:last], True
        start = last
    yield hit.snippet[start:], False


def _marked(hit: MessageHit, out: Output, room: int) -> str:
    """The snippet in at most *room* columns, matches in colour, or between stars where there is none."""
    in_colour = out.style("x", bold=True) != "x"
    start = _first_shown(hit, room)
    pieces = ["…"] if start else []
    room -= len(pieces)
    for part, is_match in _parts(hit, start):
        whole = part if in_colour or not is_match else f"**{part}**"
        shown = cut(whole, room)
        pieces.append(out.style(shown, fg="yellow", bold=True) if is_match else shown)
        room -= width(shown)
        if shown != whole or not room:
            break
    return "".join(pieces)


def _first_shown(hit: MessageHit, room: int) -> int:
    """From where on the snippet is shown, so that the first match is in the part there is room for."""
    first, last = hit.matches[0] if hit.matches else (0, 0)
    return first - room // 3 if last > room * 2 // 3 and first > room // 3 else 0
