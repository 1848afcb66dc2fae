"""The names of a project's memory: namespaces, keys, and the files they turn into."""

from __future__ import annotations

from typing import Final, NamedTuple

from snapshot_plugin.errors import InvalidInput, InvalidSessionId
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.model.redact import redact

__all__ = [
    "API_SCHEMA",
    "BASELINES",
    "ERRORS",
    "ERROR_HISTORY",
    "NOISE",
    "NOISE_CONFIG",
    "PERFORMANCE",
    "SCHEMA",
    "SUFFIX",
    "TIMINGS",
    "Name",
    "name_from_file",
    "name_of",
    "namespace_dir",
    "namespace_of",
]

SUFFIX: Final = ".json"

BASELINES: Final = "baselines"
NOISE: Final = "noise"
API_SCHEMA: Final = "api_schema"
ERRORS: Final = "errors"
PERFORMANCE: Final = "performance"

_RESERVED: Final = frozenset({"meta.json", "*"})


class Name(NamedTuple):
    """An entry's namespace and key. Made by `name_of`, so both can be files."""

    namespace: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.key}"

    @property
    def file(self) -> str:
        """The entry's path below the memory's directory."""
        return f"{dirname_of(self.namespace)}/{dirname_of(self.key)}{SUFFIX}"


NOISE_CONFIG: Final = Name(NOISE, "config")
SCHEMA: Final = Name(API_SCHEMA, "schema")
ERROR_HISTORY: Final = Name(ERRORS, "history")
TIMINGS: Final = Name(PERFORMANCE, "endpoints")


def name_of(namespace: str, key: str) -> Name:
    """The entry *key* of *namespace*; `InvalidInput` if one of them cannot be a file name or holds a secret."""
    return Name(_checked("namespace", namespace), _checked("key", key))


def namespace_dir(namespace: str) -> str:
    """The directory of a namespace; `InvalidInput` as `name_of`."""
    return dirname_of(_checked("namespace", namespace))


def namespace_of(directory: str) -> str | None:
    """The namespace a directory name stands for; None if it is none."""
    return session_id_of(directory)


def name_from_file(namespace: str, file: str) -> Name | None:
    """The entry a file of a namespace is; None for files that are none, such as those a crash left behind."""
    key = session_id_of(file.removesuffix(SUFFIX)) if file.endswith(SUFFIX) else None
    return None if key is None else Name(namespace, key)


def _checked(what: str, name: str) -> str:
    if name in _RESERVED:
        raise InvalidInput(f"the {what} {name!r} is taken", hint="choose another name")
    try:
        dirname_of(name)
    except InvalidSessionId as error:
        reason = error.message.partition(": ")[2]
        raise InvalidInput(f"the {what} {name!r:.60} cannot be a file name: {reason}", hint=error.hint) from None
    if not redact(name)[1].is_empty:
        raise InvalidInput(f"the {what} holds a secret, and names are stored as they are", hint="choose another")
    return name
