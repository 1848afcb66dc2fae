"""Values that are secret because of the name before them: ``password=…``, ``x-api-key: …``, ``https://me:…@host``.

What a name promises is checked on the value. A password may be any literal, but no sentence, label, variable or
placeholder. A token or API key must look random: ``max_tokens=4096`` and ``api_key=settings.key`` are not secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final, NamedTuple

from snapshot_plugin.model.secret_rule import Found, Rule

__all__ = ["NAME_RULES", "assigned_kind", "may_assign"]


def assigned_kind(name: str, value: str) -> str | None:
    """The kind of secret that *value* is because of its *name*, as ``password`` or ``dbPassword``; else None."""
    known = _known(name[-_LONGEST_NAME:])
    if known is None or not 0 < len(value) <= _LONGEST or _SPACE.search(value):
        return None
    if not _is_literal(value, value.lower(), 0, len(value)):
        return None
    return known.kind if known.any_literal or (_KEY.fullmatch(value) and _is_random(value)) else None


def may_assign(name: str) -> bool:
    """Return False only if `assigned_kind` finds no value of that *name* secret."""
    return _known(name[-_LONGEST_NAME:]) is not None


# Which values can be secrets --------------------------------------------------------------------------------------

_LONGEST: Final = 256
_SHORTEST_KEY: Final = 12
_SPACE: Final = re.compile(r"\s")
_STAND_IN: Final = (  # in lower case, as all patterns here that are not compiled by themselves
    r"[*x.•:$_-]++|\$\w++|%\w|%\w++%"
    r"|(?:pass(?:word|wd|phrase)?|secret|string|str|text|example|sample|redacted|hidden|masked"
    r"|none|null|nil|true|false|undefined|required|optional)"
)
_REFERENCE: Final = r"[a-z_]\w*+(?:\.[a-z_]\w*+)++|[a-z]++(?:_[a-z]++)++"
_TEMPLATE: Final = r"\[redacted:[a-z-]+\]|\{.*\}|<.*>|%\(\w+\)\w|.*\$[{(].*|(?:my|your)[_-].*"
_NO_LITERAL: Final = re.compile(f"{_STAND_IN}|{_TEMPLATE}", re.DOTALL)
_LABEL: Final = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]*[?!.:…]*")
_KEY: Final = re.compile(
    r"(?=[^0-9]*+[0-9])(?=[^A-Za-z]*+[A-Za-z])(?!/|\./|https?:|[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++\Z)"
    r"[\w.~+/=%@!&-]{12,}+"
)
_LOWER, _UPPER, _DIGIT = 1, 2, 16
_CLASSES: Final = bytes(
    _LOWER * (char in ascii_lowercase) | _UPPER * (char in ascii_uppercase) | _DIGIT * (char in digits)
    for char in map(chr, range(256))
)
_RANDOM_PIECE: Final = 3.4
"""Random letters and digits change their class after about two characters, words and numbers after more."""


def _is_literal(text: str, folded: str, start: int, end: int) -> bool:
    """Whether a value without spaces can be a password itself: no label, and no stand-in for one."""
    if "a" <= text[start] <= "z" or not _LABEL.fullmatch(text, start, end):
        return not _NO_LITERAL.fullmatch(folded, start, end)
    return False


def _is_random(value: str) -> bool:
    """Whether its pieces are short: words (``abc``, ``Abc``, ``ABC``) and numbers.

    A large integer holds one byte per character, so that a few operations compare each with the one before.
    """
    classes = int.from_bytes(value.encode("ascii", "replace").translate(_CLASSES), "big")
    starts = classes & ~(classes >> 8)
    capitals = starts & (starts >> 9)  # a lower-case piece behind one upper-case letter is one piece with it
    return classes.bit_count() <= _RANDOM_PIECE * (starts.bit_count() - capitals.bit_count())


# Names ------------------------------------------------------------------------------------------------------------


class _Name(NamedTuple):
    """A name that makes what is assigned to it a secret. Its pattern begins with *start*, which is fast to find."""

    start: str
    pattern: str
    kind: str
    any_literal: bool = False
    """Whether a value need not look random."""
    sign: str = ""
    """The pattern without lookaround, where it is another."""


_LONGEST_NAME: Final = 64
_KEY_WORDS: Final = ("api", "access", "account", "auth", "encryption", "signing", "secret")
_BEFORE_KEY: Final = "|".join(f"(?<={word}[_-]key)|(?<={word}key)" for word in _KEY_WORDS)
_NO_CURSOR: Final = "".join(  # places in a list, as ``next_page_token``, are no secrets
    f"(?<!{word}token)(?<!{word}[_-]token)"
    for word in ("page", "next", "continuation", "cancel", "cancellation", "sync", "cursor")
)
_NAMES: Final = (
    _Name("passw", "passw(?:or)?d", "password", any_literal=True),
    _Name("passphrase", "passphrase", "password", any_literal=True),
    _Name("pwd", r"pwd(?![\\\"' \t:=>]{1,12}/)", "password", any_literal=True, sign="pwd"),
    _Name(
        "secret",
        r"secret(?:(?<=client[_-]secret)|(?<=clientsecret))",
        "secret",
        any_literal=True,
        sign="client[_-]?secret",
    ),
    _Name("secret", r"secret[_-]?access[_-]?key", "secret", any_literal=True),
    _Name("secret", "secret", "secret"),
    _Name("token", f"token{_NO_CURSOR}", "token", sign="token"),
    _Name("_pat", "_pat", "token"),
    _Name("key", f"key(?:{_BEFORE_KEY})", "api-key", sign=f"(?:{'|'.join(_KEY_WORDS)})[_-]?key"),
)
_AT_END: Final = tuple((name, re.compile(rf"{name.pattern}\Z")) for name in _NAMES)


@lru_cache(maxsize=4096)
def _known(name: str) -> _Name | None:
    """The known name that *name* ends with, if there is one."""
    folded = name.lower()
    return next((known for known, pattern in _AT_END if pattern.search(folded)), None)


# The patterns run on lower case and decide as much as they can, as Python code is slower. An unnamed group at the
# end marks what is no value. Each form always matches once it has begun: no search begins again inside of a value.


def _unquoted(form: str, chars: str, after: str, no_value: str) -> str:
    """A value of *chars* before one of *after*. Code looks much the same: ``password=self.password``."""
    no_value = rf"(?:{_STAND_IN}|{_REFERENCE}|{no_value})(?!{chars})|(?:my|your)[_-]{chars}*+"
    return rf"(?:{no_value})()|(?P<{form}>{chars}{{4,}}+)(?:(?=[{after}]|\Z)|())"


_BARE: Final = _unquoted("bare", r"[^\s\"'&;,()\[\]{}<>\\|`]", r" \t\r\n\"'&;,)\\|`", r"[^\W\d]\w*+(?=[,)])")
_LINE: Final = _unquoted("line", r"[^\s\"'`(){}\[\]<>$,;|\\]", r"\"'\r\n\\", r"[^\W\d_]++")
_QUOTED: Final = r"(?P<quote>\\{0,4}[\"'])(?P<quoted>(?:(?!(?P=quote))\S)++)(?:(?=(?P=quote))|())"
_VALUE: Final = rf"(?:=(?!=)(?:{_BARE})|\\{{0,4}}[\"']?[ \t]{{0,4}}(?:=>|[:=])[ \t]{{0,4}}(?:{_QUOTED}|{_LINE}))"
_ASSIGNED_SIGN: Final = r"\\{0,4}[\"']?[ \t]{0,4}(?:=>|[:=])"
_KEY_SIGN: Final = r"[ \t]{0,4}\\{0,4}[\"']?[^\s\"'()\[\]{},;|\\<>]{12}"


def _assigned(name: _Name) -> Rule:
    pattern = re.compile(name.pattern + _VALUE)
    kind, any_literal, shortest = name.kind, name.any_literal, 1 if name.any_literal else _SHORTEST_KEY

    def find(text: str, folded: str) -> Iterator[Found]:
        for match in pattern.finditer(folded):
            form = match.lastgroup
            if form is None:
                continue
            start, end = match.span(form)
            if not shortest <= end - start <= _LONGEST:
                continue
            if form == "quoted" and _NO_LITERAL.fullmatch(folded, start, end):
                continue
            if any_literal:
                if "a" <= text[start] <= "z" or not _LABEL.fullmatch(text, start, end):
                    yield start, end, kind
            elif _KEY.fullmatch(text, start, end) and _is_random(text[start:end]):
                yield start, end, kind

    value = "" if name.any_literal else _KEY_SIGN
    return Rule((name.start,), find, f"(?i:{name.sign or name.pattern}){_ASSIGNED_SIGN}{value}")


# Further forms ----------------------------------------------------------------------------------------------------


_IsSecret = Callable[[str, str, int, int], bool]
"""Called with the text, the same in lower case, and where the value starts and ends."""


def _rule(kind: str, starts: str, pattern: str, is_secret: _IsSecret, *, sign: str, after: str = "") -> Rule:
    """A pattern over folded text, whose group ``secret`` passes *is_secret*; *after* stands shortly before it."""
    compiled = re.compile(pattern)

    def find(text: str, folded: str) -> Iterator[Found]:
        seen = -1  # where *after* was seen last
        for match in compiled.finditer(folded):
            if after:
                at = match.start()
                if seen < 0 or seen < at - _NEAR:
                    seen = folded.rfind(after, max(0, at - _NEAR), at)
                if seen < 0:
                    continue
            start, end = match.span(1)
            if is_secret(text, folded, start, end):
                yield start, end, kind

    return Rule(tuple(starts.split()), find, f"(?i:{sign})")


def _of_value(is_secret: Callable[[str], bool]) -> _IsSecret:
    return lambda text, _folded, start, end: is_secret(text[start:end])


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


_NETRC_SIGN: Final = r"login[ \t\n]{1,8}\S+[ \t\n]{1,8}password[ \t\n]"
_CURL_SIGN: Final = r"-u(?:ser)?[ =][\"']?[^\s:\"'/]+:"
_COOKIE_SIGN: Final = r"(?:sess(?:ion)?_?id|connect\.sid|jsessionid|phpsessid)="

NAME_RULES: Final = (
    Rule(("authorization",), _find_authorization, r"(?i:authorization)\\{0,4}[\"']?[ \t]{0,4}[:=]"),
    _rule("url-password", "://", _USERINFO, _is_literal, sign=r"://[^\s/@]*:[^\s/@]+@"),
    *map(_assigned, _NAMES),
    _rule(
        "password",
        "login",
        _NETRC,
        _of_value(lambda value: not value.isalpha()),
        after="machine ",
        sign=_NETRC_SIGN,
    ),
    _rule("password", "curl", _CURL, _is_literal, after="curl", sign=_CURL_SIGN),
    _rule("password", "sshpass", _SSHPASS, _is_literal, sign="sshpass -p"),
    _rule("docker-auth", '"auth"', _DOCKER, _of_value(_is_basic), sign='"auth"'),
    _rule("cookie", "cookie", _COOKIE, _of_value(_is_random), after="cookie", sign=_COOKIE_SIGN),
)
