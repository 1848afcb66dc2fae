"""`SnapshotSessionService`: sessions of Google's Agent Development Kit as sessions of a snapshot store.

::

    runner = Runner(app_name="shop", agent=agent, session_service=SnapshotSessionService("sessions"))

Events are the messages of a session, its state is a section. State of an app and of a user, which their sessions
share, is in companion sessions that lists hide. Install ``snapshot-plugin[google-adk]``.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.frameworks.conversations import (
    FLOATS,
    checked,
    described,
    left_out,
    reading,
    with_floats,
    without_floats,
)
from snapshot_plugin.frameworks.google_events import json_of, message_of
from snapshot_plugin.frameworks.sessions import (
    COMPANION,
    Key,
    LabelledSnapshot,
    OpenSessions,
    Place,
    SharedSession,
    labelled,
    name_in,
    new_session,
)
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store.hop import in_thread

with needs_extra("google-adk", "sessions of ADK need the package google-adk"):
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State

__all__ = ["SnapshotSessionService"]

FRAMEWORK = "google-adk"
FORMAT = 1
_STATE = f"{FRAMEWORK}:state"
_FLOATS = f"{FRAMEWORK}:floats"
"""For each name in the state: where its value holds a NaN, an infinity or bytes."""
_log = logging.getLogger(__name__)
_PREFIXES = {"app": State.APP_PREFIX, "user": State.USER_PREFIX}


class SnapshotSessionService(BaseSessionService):
    """Keeps sessions: each event is durable when `append_event` returns. An event that is repeated is kept once.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
    """

    def __init__(self, place: Place, key: Key = None) -> None:
        self._kept = _KeptSessions(OpenSessions(place, key))

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session; `AlreadyExistsError` if there is one with this id."""
        name = (session_id or "").strip() or str(uuid.uuid4())
        return await in_thread(self._kept.create, (app_name, user_id, name), state or {})

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """A session with its events and the state it shares; None if there is none."""
        return await in_thread(self._kept.get, (app_name, user_id, session_id.strip()), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of an app, or of one user, without events; the one changed last is last."""
        return ListSessionsResponse(sessions=await in_thread(self._kept.listed, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session for ever. State that it shares with others stays."""
        await in_thread(self._kept.delete, (app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state that all sessions of a user share, without the prefix ``user:``."""
        return await in_thread(self._kept.shared_state, app_name, user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event and apply its change of state.

        Raises:
            StaleSessionError: another writer has added events since *session* was read. Nothing is added.
            SessionNotFoundError: the session is not there.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        if await in_thread(self._kept.append, session, event):
            self._commit_event_to_session(session, event)
            session.last_update_time = event.timestamp
        return event


class _KeptSessions:
    """The work of the service, in a worker thread."""

    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions

    def create(self, key: tuple[str, str, str], state: Mapping[str, Any]) -> Session:
        """See `create_session`."""
        if self._session(key).current() is not None:
            raise AlreadyExistsError(f"Session with id {key[2]} already exists.")
        own = self._share(key, state)

        def change(head: SessionSnapshot | None) -> LabelledSnapshot:
            if head is not None:
                raise AlreadyExistsError(f"Session with id {key[2]} already exists.")
            made = new_session(self._session(key).session_id, FRAMEWORK)
            return self._change(made, key, own, time.time())

        self._session(key).change(change)
        found = self.get(key, None)
        if found is None:
            raise SessionNotFoundError(f"Session {key[2]} not found.")
        return found

    def get(self, key: tuple[str, str, str], config: GetSessionConfig | None) -> Session | None:
        """See `get_session`."""
        head = checked(self._session(key).current(), FRAMEWORK)
        if head is None:
            return None
        messages = head.messages
        if config and config.num_recent_events is not None:
            messages = messages[-config.num_recent_events :] if config.num_recent_events else ()
        with reading(head.session_id, FRAMEWORK):
            events = [Event.model_validate(json_of(each)) for each in messages]
        if config and config.after_timestamp is not None:
            old = [at for at, event in enumerate(events) if event.timestamp < config.after_timestamp]
            events = events[old[-1] + 1 :] if old else events
        found = self._made(key, head.plugins, events)
        found._storage_update_marker = _marker(head.messages)  # noqa: SLF001 — where ADK's own services keep it
        return found

    def listed(self, app_name: str, user_id: str | None) -> list[Session]:
        """See `list_sessions`."""
        found = []
        for key, sections in self._of(app_name, user_id):
            with left_out():
                found.append(self._made(key, sections, []))
        return sorted(found, key=lambda each: (each.last_update_time, each.user_id, each.id))

    def _of(self, app_name: str, user_id: str | None) -> Iterator[tuple[tuple[str, str, str], Mapping[str, Any]]]:
        for meta, about in labelled(self._sessions.store, FRAMEWORK, "app", "user", "session"):
            named = (str(about.get("app")), str(about.get("user")), str(about.get("session")))
            # Without companions and branches that people made: ADK does not know their ids.
            if name_in(meta.session_id, _name(named)) != _name(named):
                continue
            if named[0] != app_name or user_id not in (None, named[1]):
                continue
            sections = {
                name: self._sessions.store.section(meta.session_id, "plugins", name)
                for name in (FRAMEWORK, _STATE, _FLOATS)
            }
            yield named, sections

    def delete(self, key: tuple[str, str, str]) -> None:
        """See `delete_session`."""
        self._session(key).delete()

    def append(self, given: Session, event: Event) -> bool:
        """Save an event; False if *given* has it already. Shared state is saved first: that can be repeated."""
        with _as_json():
            message = message_of(event.model_dump(mode="json", exclude_none=True))
        key = (given.app_name, given.user_id, given.id)
        session = self._session(key)
        with session.lock:  # appends at once through one session object follow each other, so none is stale
            known = self._found(session.current(), key)
            if _has(known, message):
                # Either the call is repeated, or its first answer was lost and *given* is one event behind.
                is_behind: bool = given._storage_update_marker == _marker(known.messages[:-1])  # noqa: SLF001 — as above
                if is_behind:
                    given._storage_update_marker = _marker(known.messages)  # noqa: SLF001 — as above
                return is_behind
            _must_not_be_stale(given, known)
            own = self._share(key, event.actions.state_delta if event.actions else {})

            def change(head: SessionSnapshot | None) -> LabelledSnapshot | None:
                newest = self._found(head, key)
                if _has(newest, message):
                    return None
                _must_not_be_stale(given, newest)
                now = max(newest.updated_at, session.now())
                facts: dict[str, Any] = {}
                if event.model_version not in (None, newest.config.model):
                    facts["config"] = newest.config.evolve(model=event.model_version)
                grown = described(newest, (*newest.messages, message), added=(message,), updated_at=now, **facts)
                return self._change(grown, key, own, event.timestamp)

            session.change(change)
            given._storage_update_marker = _marker((*known.messages, message))  # noqa: SLF001 — as above
        return True

    @staticmethod
    def _found(head: SessionSnapshot | None, key: tuple[str, str, str]) -> SessionSnapshot:
        found = checked(head, FRAMEWORK)
        if found is None:
            raise SessionNotFoundError(f"Session {key[2]} not found.")
        return found

    def shared_state(self, app_name: str, user_id: str | None = None) -> dict[str, Any]:
        """The state of an app, or of a user of it."""
        head = checked(self._companion(app_name, user_id).current(), FRAMEWORK)
        return _state_in(head.session_id, head.plugins) if head else {}

    def _share(self, key: tuple[str, str, str], delta: Mapping[str, Any]) -> dict[str, _Stored]:
        """Save what *delta* says about the app and the user; returns what it says about the session itself."""
        with _as_json():
            "".join(delta).encode()  # an error if a name is not valid Unicode
            plain = {name: _stored(value) for name, value in delta.items()}
        own = {name: value for name, value in plain.items() if not name.startswith(_ALL_PREFIXES)}
        for kind, user_id in (("app", None), ("user", key[1])):
            prefix = _PREFIXES[kind]
            more = {name.removeprefix(prefix): value for name, value in plain.items() if name.startswith(prefix)}
            if more:
                self._extend(self._companion(key[0], user_id), more)
        return own

    @staticmethod
    def _extend(session: SharedSession, more: Mapping[str, _Stored]) -> None:
        def change(head: SessionSnapshot | None) -> LabelledSnapshot:
            base = checked(head, FRAMEWORK) or new_session(session.session_id, FRAMEWORK)
            sections = {FRAMEWORK: {"format": FORMAT}, **_state_with(more, base.plugins)}
            made = base.evolve(plugins=sections, updated_at=session.now())
            return LabelledSnapshot(made, {"framework": FRAMEWORK})

        session.change(change)

    @staticmethod
    def _change(
        base: SessionSnapshot, key: tuple[str, str, str], own: Mapping[str, _Stored], when: float
    ) -> LabelledSnapshot:
        about = {"app": key[0], "user": key[1], "session": key[2]}
        core = {"format": FORMAT, **about, "last_update_time": when}
        made = base.evolve(plugins={**base.plugins, FRAMEWORK: core, **_state_with(own, base.plugins)})
        return LabelledSnapshot(made, {"framework": FRAMEWORK, **about})

    def _made(self, key: tuple[str, str, str], sections: Mapping[str, Any], events: list[Event]) -> Session:
        state = _state_in(self._session(key).session_id, sections)
        for kind, user_id in (("app", None), ("user", key[1])):
            shared = self.shared_state(key[0], user_id)
            state.update({_PREFIXES[kind] + name: value for name, value in shared.items()})
        with reading(self._session(key).session_id, FRAMEWORK):
            when = sections[FRAMEWORK]["last_update_time"]
            return Session(
                app_name=key[0], user_id=key[1], id=key[2], state=state, events=events, last_update_time=when
            )

    def _session(self, key: tuple[str, str, str]) -> SharedSession:
        return self._sessions.session(_name(key))

    def _companion(self, app_name: str, user_id: str | None) -> SharedSession:
        owner = (app_name,) if user_id is None else (app_name, user_id)
        return self._sessions.session(f"state.{_digest(owner)}", COMPANION)


_ALL_PREFIXES = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)


class _Stored(NamedTuple):
    """A value of the state as JSON, and where it holds what JSON does not have; see `without_floats`."""

    value: Any
    floats: list[list[Any]]


def _stored(value: Any) -> _Stored:
    plain, found = without_floats(value)
    # A second time: there are numbers in tuples, sets and objects, too.
    plain, more = without_floats(to_jsonable_python(plain, fallback=_text_of))
    return _Stored(plain, [*found, *more])


@contextlib.contextmanager
def _as_json() -> Iterator[None]:
    """Raises `InvalidInput` where the JSON of pydantic raises an error of its own."""
    try:
        yield
    except UnicodeError as error:
        raise InvalidInput(
            f"the state cannot be stored as JSON: {error}", hint="use names that are valid Unicode"
        ) from error


def _state_with(more: Mapping[str, _Stored], before: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of the state in *before* with *more* values."""
    state, floats = before.get(_STATE, {}), before.get(_FLOATS, {})
    if more:
        state = {**state, **{name: stored.value for name, stored in more.items()}}
        floats = {**floats, **{name: stored.floats for name, stored in more.items()}}
    sections = {_STATE: state, _FLOATS: {name: found for name, found in floats.items() if found}}
    return sections if sections[_FLOATS] or _FLOATS in before else {_STATE: state}


def _state_in(session_id: str, sections: Mapping[str, Any]) -> dict[str, Any]:
    floats = sections.get(_FLOATS) or {}
    with reading(session_id, FRAMEWORK):
        return {
            name: with_floats(thaw(value), {FLOATS: floats.get(name, ())})
            for name, value in (sections.get(_STATE) or {}).items()
        }


def _text_of(value: object) -> str:
    """What the state keeps of an object that is not JSON, as ADK's own services do."""
    _log.warning("the state holds a %s, which is not JSON: its text is stored", type(value).__name__)
    return str(value)


def _has(snapshot: SessionSnapshot, message: Message) -> bool:
    return any(each == message for each in snapshot.messages if each.id == message.id)


def _marker(messages: Sequence[Message]) -> str:
    """Which events a session has. Titles, tags and notes that people add do not make it stale."""
    return f"{len(messages)} {messages[-1].id if messages else ''}"


def _must_not_be_stale(given: Session, head: SessionSnapshot) -> None:
    """Raise `StaleSessionError` if *head* has events that *given* lacks."""
    if given._storage_update_marker is not None:  # noqa: SLF001 — where ADK's own services keep it
        is_stale = given._storage_update_marker != _marker(head.messages)  # noqa: SLF001 — as above
    else:  # from a list, or from elsewhere: compared as ADK's `DatabaseSessionService` does
        last = given.events[-1].id if given.events else None
        is_newer = head.plugins[FRAMEWORK]["last_update_time"] > given.last_update_time
        is_stale = is_newer and last != (head.messages[-1].id if head.messages else None)
    if is_stale:
        raise StaleSessionError(f"Session {given.id} has been changed since it was read; get it again.")


def _name(key: tuple[str, str, str]) -> str:
    return f"{key[2]}.{_digest(key[:2])}"


def _digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256(repr(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]
