"""Environment values and credentials in a session's settings, which are never stored.

An agent's settings include values that a snapshot must not hold: environment variables, API keys, tokens. Their
values are removed when a snapshot is made; their names are kept, so that people can see what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from snapshot_plugin.model.secret_shapes import assigned_kind, known_name
from snapshot_plugin.model.secret_values import is_variable

__all__ = [
    "WITHHELD",
    "command_without_secrets",
    "is_credential",
    "withheld_in",
    "without_credentials",
    "without_login",
    "without_secrets",
]

WITHHELD: Final = "<withheld>"
"""Replaces a value in a command line that is not stored."""

_ENVIRONMENTS: Final = frozenset({"env", "environ", "environment", "env_vars", "environment_variables"})
_MODEL_TOKENS: Final = frozenset({"bos", "cls", "end", "eos", "mask", "pad", "sep", "start", "stop", "unk"})
"""Words before ``token`` in names of text tokens, which are not secrets."""
_SCHEMA_TYPES: Final = ("string", "object", "array", "number", "integer", "boolean", "null")
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_LOGIN: Final = re.compile(r"(?<=://)[^/?#@\s]*@")
_VALUE: Final = r"""("[^"]*"|'[^']*'|[^\s"']\S*)"""
_ASSIGNED: Final = re.compile(rf"(?<![\w.-])([\w.-]+)(=){_VALUE}")
_FOLLOWING: Final = re.compile(rf"(?<!\S)(--?[A-Za-z][\w.-]*)([ \t]+)(?!-){_VALUE}")


def is_credential(name: str, value: Any) -> bool:
    """Whether a setting called *name* holds a secret: ``api_key``, ``githubToken``, ``DB_PASSWORD``.

    Variables and placeholders such as ``${API_KEY}`` are not secrets. An object or list counts if it contains text.
    """
    if isinstance(value, dict | list | tuple):
        if isinstance(value, dict) and value.get("type") in _SCHEMA_TYPES:  # a parameter of a tool
            return False
        return any(is_credential(name, each) for each in (value.values() if isinstance(value, dict) else value))
    if not isinstance(value, str) or is_variable(value):
        return False
    known = known_name(name)
    if known is None or not (known.setting or assigned_kind(name, value)):
        return False
    *before, last = (word.lower() for word in _HUMPS.split(name) if word)
    return last != "token" or not _MODEL_TOKENS.intersection(before[-1:])


def without_secrets(data: Mapping[str, Any], path: str = "") -> tuple[dict[str, Any], tuple[str, ...]]:
    """*data* without environment values and credentials, and the paths of the removed values.

    Parts without secrets stay the same objects.
    """
    taken: list[str] = []
    return _cleaned(data, path, taken, _ENVIRONMENTS), tuple(taken)


def without_credentials(data: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """As `without_secrets`, for data other than settings: objects named like an environment are kept."""
    taken: list[str] = []
    return _cleaned(data, "", taken, frozenset()), tuple(taken)


def without_login(url: str) -> str:
    """*url* without ``user:password@``, and without parameters named like credentials."""
    address, mark, query = _LOGIN.sub("", url, count=1).partition("?")
    kept = [each for each in query.split("&") if not is_credential(*each.partition("=")[::2])]
    return address + (mark + "&".join(kept) if any(kept) else "")


def command_without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """A command line with the values of options and variables named like credentials replaced by `WITHHELD`.

    A word with spaces is treated as a command line itself (``sh -c``). Logins are removed from URLs.
    """
    out: list[str] = []
    option = ""
    for word in words:
        kept = _LOGIN.sub(f"{WITHHELD}@", word)
        if option and not word.startswith("-") and is_credential(option, word):
            kept = WITHHELD
        elif re.search(r"\s", kept):
            kept = _FOLLOWING.sub(_without_value, _ASSIGNED.sub(_without_value, kept))
        elif match := _ASSIGNED.fullmatch(kept):
            kept = _without_value(match)
        option = word if word.startswith("-") and "=" not in word else ""
        out.append(kept)
    return tuple(out)


def _without_value(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    return f"{name}{between}{WITHHELD}" if is_credential(name, value.strip("\"'")) else match[0]


def withheld_in(command: Iterable[str]) -> tuple[str, ...]:
    """The names of what `command_without_secrets` removed: ``--api-key``, ``GITHUB_TOKEN``, ``https://``."""
    before = " ".join(command).split(WITHHELD)[:-1]
    named = (part for part in before if part.endswith(("=", "://")) or part[-1:].isspace())
    return tuple(dict.fromkeys(name for part in named for name in part.removesuffix("=").split()[-1:]))


def _cleaned(data: Mapping[str, Any], path: str, taken: list[str], environments: frozenset[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in data.items():
        here = f"{path}.{name}" if path else str(name)
        if str(name).lower() in environments and (isinstance(value, dict | list | tuple) or _is_dotenv(value)):
            lines = value.splitlines() if isinstance(value, str) else value
            taken += (f"{here}.{variable}" for variable in _variables(lines))
        elif is_credential(str(name), value):
            taken.append(here)
        else:
            out[name] = _inside(value, here, taken, environments)
    return out


def _inside(value: Any, path: str, taken: list[str], environments: frozenset[str]) -> Any:
    before = len(taken)
    if isinstance(value, dict):
        cleaned: Any = _cleaned(value, path, taken, environments)
    elif isinstance(value, list | tuple):
        items = _arguments(value, path, taken)
        cleaned = [_inside(item, f"{path}[{index}]", taken, environments) for index, item in enumerate(items)]
    else:
        return value
    return cleaned if len(taken) > before else value


def _is_dotenv(value: Any) -> bool:
    return isinstance(value, str) and "=" in value


def _arguments(items: list[Any] | tuple[Any, ...], path: str, taken: list[str]) -> Iterator[Any]:
    """The items of a command line without the values of options such as ``--api-key``."""
    flag = ""
    for item in items:
        is_text = isinstance(item, str)
        if flag and is_text and not item.startswith("-") and is_credential(flag, item):
            taken.append(f"{path}.{flag}")
            flag = ""
            continue
        flag, equals, value = item.partition("=") if is_text and item.startswith("-") else ("", "", "")
        if equals and is_credential(flag, value):
            taken.append(f"{path}.{flag}")
            yield flag
        else:
            yield item


def _variables(environment: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Iterator[str]:
    """The names of environment variables: of an object, of ACP's ``{"name", "value"}`` pairs, of ``NAME=value``."""
    for item in environment:
        name = item.get("name") if isinstance(item, dict) else item
        if isinstance(name, str):
            yield name.partition("=")[0]
