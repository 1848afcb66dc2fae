"""The settings: their defaults, and where each value came from."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager import config_values as read
from snapshot_plugin.manager.config_layers import Layer, Origin, environment_layer, file_layer
from snapshot_plugin.manager.places import default_storage_path, user_config_file

if TYPE_CHECKING:
    from snapshot_plugin.model.policy import RetentionPolicy

__all__ = ["Origin", "SnapshotConfig"]

Span = float | str | timedelta
"""A duration: seconds, text such as ``5m``, or a timedelta."""

_log = logging.getLogger(__name__)
_DEFAULT = Origin(layer="default")
_CODE = Origin(layer="code")


def _setting(default: Any, reader: read.Reader) -> Any:
    return field(default=default, metadata={"read": reader})


@dataclass(frozen=True, kw_only=True)
class SnapshotConfig:
    """Settings of the manager. Construct them in code, or read them from all sources with `load`.

    Durations are seconds, a timedelta, or text such as ``"5m"``. An invalid value, such as an interval of zero,
    raises `InvalidInput` with the name of the setting and its source.
    """

    enable_persistence: bool = _setting(True, read.switch)
    """Save sessions automatically from their start on. Explicit calls always work. A manager that is given neither
    a store nor settings has it off."""
    snapshot_interval: float = _setting(300.0, read.seconds)
    """The longest time a changed session goes without a save."""
    snapshot_on_exit: bool = _setting(True, read.switch)
    """Save a session when it stops, and all sessions when the manager closes."""
    snapshot_on_signal: bool = _setting(True, read.switch)
    """With `enable_persistence`: save all sessions on SIGTERM or SIGINT before the signal takes effect."""
    storage_path: str = field(
        default_factory=lambda: str(default_storage_path(os.environ)), metadata={"read": read.place}
    )
    """The store: a directory or a URL."""
    max_snapshots_per_session: int = _setting(10, read.count)
    """How many snapshots of a session are kept if `retention` is not set. Tagged snapshots are kept in addition."""
    retention: RetentionPolicy | None = field(default=None, metadata={"read": read.policy})
    """A retention policy, in place of `max_snapshots_per_session`."""
    max_sessions: int | None = field(default=None, metadata={"read": read.limit})
    """How many sessions are kept: those that changed last. The others are moved to the trash. None: all."""
    max_session_age: float | None = field(default=None, metadata={"read": read.lifetime})
    """How long a session is kept after its last change, before it is moved to the trash. None: for ever."""
    encryption: bool = _setting(False, read.switch)
    """Refuse stores that are not encrypted."""
    event_debounce: float = _setting(2.0, read.seconds)
    """How long calls of `touch` are coalesced into one save."""
    snapshot_timeout: float = _setting(10.0, read.seconds)
    """Timeout of a session's async `snapshot()`."""
    exit_timeout: float = _setting(10.0, read.seconds)
    """Timeout of all last saves together, when the manager closes or a signal arrives. More than 500 sessions get
    more time, in proportion."""
    retry_first: float = _setting(1.0, read.seconds)
    """The pause after the first failed save; it doubles with each further failure."""
    retry_max: float = _setting(60.0, read.seconds)
    """The longest pause between two tries."""
    max_concurrent_saves: int = _setting(2, read.count)
    """How many sessions are saved at once. More threads make the event loop late. When the manager closes, at least
    eight are."""
    spool_flush_interval: float = _setting(1.0, read.seconds)
    """How often the spool is synced: what a power cut may cost of an unfinished turn."""
    max_message_bytes: int = _setting(256 << 20, read.count)
    """The longest message that is read from an ACP agent or client. A longer one is left out, and both are told."""

    if TYPE_CHECKING:  # settings accept more types than they hold, such as text for a duration

        def __init__(
            self,
            *,
            enable_persistence: bool = ...,
            snapshot_interval: Span = ...,
            snapshot_on_exit: bool = ...,
            snapshot_on_signal: bool = ...,
            storage_path: str | os.PathLike[str] = ...,
            max_snapshots_per_session: int = ...,
            retention: RetentionPolicy | Mapping[str, Any] | None = ...,
            max_sessions: int | None = ...,
            max_session_age: Span | None = ...,
            encryption: bool = ...,
            event_debounce: Span = ...,
            snapshot_timeout: Span = ...,
            exit_timeout: Span = ...,
            retry_first: Span = ...,
            retry_max: Span = ...,
            max_concurrent_saves: int = ...,
            spool_flush_interval: Span = ...,
            max_message_bytes: int = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for setting in fields(self):
            object.__setattr__(self, setting.name, _checked(setting.name, getattr(self, setting.name), _CODE))

    @classmethod
    def load(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        user_file: Path | None = None,
        **code: Any,
    ) -> Self:
        """Read settings from all sources: code, environment, the user's file, defaults, in this order.

        Files of a project are never read: a project may come from a stranger.

        Reads files: call it before the event loop starts.

        Args:
            environ: default: the process's own.
            user_file: default: ``config.toml`` in the user's configuration directory.
            code: settings given here override all others.
        """
        names = [setting.name for setting in fields(cls)]
        if unknown := code.keys() - set(names):
            raise InvalidInput(f"there is no setting {min(unknown)!r}")
        environ = os.environ if environ is None else environ
        layers = (
            Layer(dict.fromkeys(code, _CODE), code),
            environment_layer(names, environ),
            file_layer(names, user_file or user_config_file(environ)),
            Layer({"storage_path": _DEFAULT}, {"storage_path": str(default_storage_path(environ))}),
        )
        return cls._from_layers(layers)

    @classmethod
    def _from_layers(cls, layers: tuple[Layer, ...]) -> Self:
        values: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        for layer in layers:
            for name in layer.values.keys() - values.keys():
                origins[name] = layer.origin[name]
                values[name] = _checked(name, layer.values[name], origins[name])
        config = cls(**values)
        notices = tuple(notice for layer in layers for notice in layer.notices)
        object.__setattr__(config, "_origins", origins)
        object.__setattr__(config, "_notices", notices)
        for notice in notices:
            _log.warning("%s", notice)
        return config

    @property
    def notices(self) -> tuple[str, ...]:
        """What `load` ignored: unknown settings."""
        found: tuple[str, ...] = getattr(self, "_notices", ())
        return found

    def origin(self, name: str) -> Origin:
        """Where the value of a setting came from."""
        known = {setting.name: setting for setting in fields(self)}
        if name not in known:
            raise InvalidInput(f"there is no setting {name!r}")
        origins: dict[str, Origin] | None = getattr(self, "_origins", None)
        if origins is not None:
            return origins.get(name, _DEFAULT)
        return _DEFAULT if getattr(self, name) == getattr(type(self)(), name) else _CODE

    @property
    def keep(self) -> RetentionPolicy:
        """The policy in effect: `retention`, or else the newest `max_snapshots_per_session`."""
        from snapshot_plugin.model.policy import RetentionPolicy  # noqa: PLC0415 — reading settings needs none

        return self.retention or RetentionPolicy(keep_last=self.max_snapshots_per_session)


_READERS: dict[str, read.Reader] = {setting.name: setting.metadata["read"] for setting in fields(SnapshotConfig)}


def _checked(name: str, value: Any, origin: Origin) -> Any:
    try:
        return _READERS[name](value)
    except InvalidInput as error:
        where = "" if origin.layer == "code" else f" ({origin})"
        raise InvalidInput(f"{name}{where}: {error.message}", hint=error.hint) from error
