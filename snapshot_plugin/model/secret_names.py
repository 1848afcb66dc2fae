"""Values that are secret because of the name before them: ``password=…``, ``x-api-key: …``, ``https://me:…@host``.

The value must fit the name. A password may be any literal, but not a sentence, label, variable or placeholder. A
token or API key must look random: ``max_tokens=4096`` and ``api_key=settings.key`` are not secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from snapshot_plugin.model.secret_rule import Found, Rule

__all__ = ["NAME_RULES", "assigned_kind", "may_assign"]


def assigned_kind(name: str, value: str) -> str | None:
    """The kind of secret that *value* is because of its *name*, as ``password`` or ``dbPassword``; else None."""
    folded = name.lower()
    for known, pattern in _AT_END:
        match = pattern.search(folded)
        if match and _is_one_word(value) and (known.any_literal or _is_key(value, folded[: match.start()])):
            return known.kind
    return None


def may_assign(name: str) -> bool:
    """Return False only if `assigned_kind` finds no value of that *name* secret."""
    folded = name.lower()
    return any(pattern.search(folded) for _, pattern in _AT_END)


def _is_one_word(value: str) -> bool:
    return 0 < len(value) <= _LONGEST and not re.search(r"\s", value) and _is_literal(value)


# Which values can be secrets --------------------------------------------------------------------------------------

_LONGEST: Final = 256
_STAND_IN: Final = re.compile(
    r"\[redacted:[a-z-]+\]"  # what we wrote ourselves
    r"|\$\w+|.*\$[{(].*|\{.*\}|<.*>|%\w|%\(\w+\)\w|%\w+%"  # variables and templates
    r"|[*xX.•:$_-]+|(?i:(?:my|your)[_-].*|example|sample|redacted|hidden|masked|pass(?:word|wd|phrase)?|secret"
    r"|string|str|text|none|null|nil|true|false|undefined|required|optional)",
    re.DOTALL,
)
_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z]+(?:_[A-Za-z]+)+")
_LABEL: Final = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]*[?!.:…]*")
_PIECES: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_KEY: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[\w.~+/=%@!&-]{12,}")
_CURSORS: Final = ("page", "next", "continuation", "cancel", "cancellation", "sync", "cursor")
_RANDOM_PIECE: Final = 3.4
"""Random letters and digits change their class after about two characters, words and numbers after more."""


def _is_literal(value: str) -> bool:
    """Whether a value without spaces can be a password: not a label and not a placeholder."""
    return not _STAND_IN.fullmatch(value) and not _LABEL.fullmatch(value)


def _is_bare_literal(value: str, after: str) -> bool:
    """Without quotes, code looks much the same: ``connect(password=password)``, ``password=self.password``."""
    in_a_call = after in (",", ")")
    return _is_literal(value) and not _REFERENCE.fullmatch(value) and not (in_a_call and value.isidentifier())


def _is_key(value: str, before: str) -> bool:
    """Whether this can be a token or a key: random, and no page cursor."""
    if before.rstrip("_-").endswith(_CURSORS) or value.startswith(("/", "./", "http:", "https:")):
        return False
    return bool(_KEY.fullmatch(value)) and not _REFERENCE.fullmatch(value) and _is_random(value)


def _is_random(value: str) -> bool:
    pieces = _PIECES.findall(value)
    return sum(map(len, pieces)) <= _RANDOM_PIECE * len(pieces)


# Names ------------------------------------------------------------------------------------------------------------


class _Name(NamedTuple):
    """A name that makes the value assigned to it a secret.

    Its pattern begins with *start*, which is fast to find.
    """

    start: str
    pattern: str
    kind: str
    any_literal: bool = False
    """Whether a value need not look random."""


_BEFORE_KEY: Final = "|".join(
    f"(?<={word}[_-]key)|(?<={word}key)"
    for word in ("api", "access", "account", "auth", "encryption", "signing", "secret")
)
_NAMES: Final = (
    _Name("passw", "passw(?:or)?d", "password", any_literal=True),
    _Name("passphrase", "passphrase", "password", any_literal=True),
    _Name("pwd", "pwd", "password", any_literal=True),
    _Name("secret", r"secret(?:(?<=client[_-]secret)|(?<=clientsecret))", "secret", any_literal=True),
    _Name("secret", r"secret[_-]?access[_-]?key", "secret", any_literal=True),
    _Name("secret", "secret", "secret"),
    _Name("token", "token", "token"),
    _Name("_pat", "_pat", "token"),
    _Name("key", f"key(?:{_BEFORE_KEY})", "api-key"),
)
_VALUE: Final = (
    # Each form always matches once it has begun, so the search never begins again inside of a value.
    r"(?:=(?P<bare>(?!=)[^\s\"'&;,()\[\]{}<>\\|`]{4,}+)"
    r"|\\{0,4}[\"']?[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}"
    r"(?:(?P<quote>\\{0,4}[\"'])(?P<quoted>(?:(?!(?P=quote))\S)++)(?P<closed>(?P=quote))?"
    r"|(?P<line>[^\s\"'`(){}\[\]<>$,;|\\]{4,}+)))"
)
_AFTER: Final = {"bare": " \t\r\n\"'&;,)\\|`", "line": "\"'\r\n\\"}
_GROUPS: Final = {"closed": "quoted"}
_AT_END: Final = tuple((name, re.compile(rf"{name.pattern}\Z")) for name in _NAMES)


def _assigned(name: _Name) -> Rule:
    pattern = re.compile(name.pattern + _VALUE)

    def find(text: str, folded: str) -> Iterator[Found]:
        for match in pattern.finditer(folded):
            form = match.lastgroup or ""  # an open quote is handled by "quoted" and is not a value
            start, end = match.span(_GROUPS.get(form, form))
            if form != "quoted" and end - start <= _LONGEST and _is_assigned(name, form, text[start:end], match):
                yield start, end, name.kind

    return Rule((name.start,), find)


def _is_assigned(name: _Name, form: str, value: str, match: re.Match[str]) -> bool:
    if form != "closed":
        after = match.string[match.end() : match.end() + 1]
        if after not in _AFTER[form] or not _is_bare_literal(value, after):
            return False
    elif not _is_literal(value):
        return False
    if not name.any_literal:
        return _is_key(value, match.string[max(0, match.start() - 16) : match.start()])
    return not (form == "line" and value.isalpha()) and not (name.start == "pwd" and value.startswith("/"))


# Further forms ----------------------------------------------------------------------------------------------------


def _rule(kind: str, starts: str, pattern: str, is_secret: Callable[[str], bool], *, after: str = "") -> Rule:
    """A pattern over folded text, whose group ``secret`` passes *is_secret*; *after* occurs shortly before it."""
    compiled = re.compile(pattern)

    def find(text: str, folded: str) -> Iterator[Found]:
        for match in compiled.finditer(folded):
            at = match.start()
            if after and folded.rfind(after, max(0, at - _NEAR), at) < 0:
                continue
            start, end = match.span("secret")
            if is_secret(text[start:end]):
                yield start, end, kind

    return Rule(tuple(starts.split()), find)


_NEAR: Final = 100
_USERINFO: Final = r"://[^\s/:@\"'\\<>]{0,128}:(?P<secret>[^\s/:@\"'\\<>]{1,256}+)@(?!sha[0-9])"
_NETRC: Final = r"login[ \t\n]{1,8}[^\s]{1,128}[ \t\n]{1,8}password[ \t\n]{1,8}(?P<secret>[^\s]{4,256}+)"
_CURL: Final = r"-u(?:ser)?[ =][\"']?[^\s:\"'/]{1,64}:(?P<secret>[^\s\"']{4,256}+)"
_SSHPASS: Final = r"sshpass -p ?[\"']?(?P<secret>[^\s\"']{4,256}+)"
_COOKIE: Final = r"(?:sess(?:ion)?_?id|connect\.sid|jsessionid|phpsessid)=(?P<secret>[a-z0-9%._-]{16,256}+)"

_DOCKER: Final = r'"auth"\s{0,4}:\s{0,4}"(?P<secret>[a-z0-9+/]{8,}+={0,2})"'
_AUTHORIZATION: Final = re.compile(
    r"authorization\\{0,4}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,4}[\"']?(?:bearer|token|(?P<basic>basic))[ \t]{1,4}"
    r"(?P<secret>[a-z0-9._~+/=-]{6,}+)"
)


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_bearer(value: str) -> bool:
    return len(value) >= 8 and any(map(str.isdigit, value))  # noqa: PLR2004 — words are shorter or have no digit


def _find_authorization(text: str, folded: str) -> Iterator[Found]:
    for match in _AUTHORIZATION.finditer(folded):
        start, end = match.span("secret")
        value = text[start:end]
        if _is_basic(value) if match["basic"] else _is_bearer(value):
            yield start, end, "authorization"


NAME_RULES: Final = (
    Rule(("authorization",), _find_authorization),
    _rule("url-password", "://", _USERINFO, _is_literal),
    *map(_assigned, _NAMES),
    _rule("password", "login", _NETRC, lambda value: not value.isalpha(), after="machine "),
    _rule("password", "-u -user", _CURL, _is_literal, after="curl"),
    _rule("password", "sshpass", _SSHPASS, _is_literal),
    _rule("docker-auth", '"auth"', _DOCKER, _is_basic),
    _rule("cookie", "id= .sid=", _COOKIE, _is_random, after="cookie"),
)
