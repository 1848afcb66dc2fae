"""Namespaces and keys, and the files they become."""

from __future__ import annotations

from typing import Final, NamedTuple

from snapshot_plugin.errors import InvalidInput, InvalidSessionId
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.model.redact import redact

__all__ = [
    "API_SCHEMA", "BASELINES", "DEFAULT", "DOCUMENTS", "ERRORS", "GLOBAL", "NOISE", "PERFORMANCE", "SUFFIX",
    "Name", "name_in_file", "name_of", "namespace_of",
]  # fmt: skip

SUFFIX: Final = ".json"
DEFAULT: Final = "default"
BASELINES: Final = "baselines"
NOISE: Final = "noise"
API_SCHEMA: Final = "api_schema"
ERRORS: Final = "errors"
PERFORMANCE: Final = "performance"
GLOBAL: Final = "global"
"""Preferences of the user that hold in every project. They are stored outside the project."""

_SAME: Final = {
    "error_history": ERRORS,
    "baseline": BASELINES,
    "noise_config": NOISE,
    "performance_baselines": PERFORMANCE,
    "_global": GLOBAL,
}
_RESERVED: Final = frozenset({"meta.json", "*"})


class Name(NamedTuple):
    """An entry's namespace and key, as `name_of` checks them."""

    namespace: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.key}"

    @property
    def path(self) -> tuple[str, str]:
        """The directory and the file a new entry gets, below the memory's directory."""
        return dirname_of(self.namespace), f"{dirname_of(self.key)}{SUFFIX}"


DOCUMENTS: Final = {
    ERRORS: Name(ERRORS, "history"),
    API_SCHEMA: Name(API_SCHEMA, "schema"),
    PERFORMANCE: Name(PERFORMANCE, "endpoints"),
    NOISE: Name(NOISE, "config"),
}
"""The namespaces whose entries are collected in one document, and the document of each."""


def namespace_of(text: str | None) -> str:
    """The namespace that *text* means: ``default`` for None, ``errors`` for ``error_history``; `InvalidInput`."""
    named = _checked("namespace", DEFAULT if text is None else text)
    return _SAME.get(named, named)


def name_of(namespace: str | None, key: str) -> Name:
    """The entry *key* of *namespace*; `InvalidInput` if one cannot be a file name or holds a secret."""
    return Name(namespace_of(namespace), _checked("key", key))


def name_in_file(directory: str, file: str) -> Name | None:
    """The entry a file is, also when a person named it; None for a file that is no entry."""
    namespace, key = _decoded(directory), _decoded(file.removesuffix(SUFFIX))
    if not file.endswith(SUFFIX) or namespace is None or key is None:
        return None
    return Name(_SAME.get(namespace, namespace), key)


def _decoded(file: str) -> str | None:
    known = session_id_of(file)
    if known is not None:
        return known
    return file if file.isprintable() and file.strip() and not file.startswith(".") else None


def _checked(what: str, name: str) -> str:
    if name in _RESERVED:
        raise InvalidInput(f"the {what} {name!r} is reserved", hint="choose another name")
    try:
        if session_id_of(dirname_of(name)) != name:
            raise InvalidInput(f"the {what} {name:.60}… is too long for a file name", hint="choose a shorter one")
    except InvalidSessionId as error:
        reason = error.message.partition(": ")[2]
        raise InvalidInput(f"the {what} {name!r:.60} cannot be a file name: {reason}", hint=error.hint) from None
    if not redact(name)[1].is_empty:
        raise InvalidInput(f"the {what} holds a secret, and names are stored as they are", hint="choose another")
    return name
