"""Values that are secret because of the name before them: ``password=…``, ``x-api-key: …``, ``https://me:…@host``.

The value is checked too. A password may be any literal, but not a sentence, label, variable or placeholder. A token
or API key must look random: ``max_tokens=4096`` and ``api_key=settings.key`` are not secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final, NamedTuple

from snapshot_plugin.model.secret_rule import NameRule, Rule, SecretRule, SecretSpan

__all__ = ["NAME_RULES", "assigned_kind", "may_assign"]


def assigned_kind(name: str, value: str) -> str | None:
    """The kind of secret that *name*, such as ``dbPassword``, makes of *value*; None if it is not a secret."""
    known = _known(name[-_LONGEST_NAME:])
    if known is None or not value or _SPACE.search(value) or _STANDS_IN.match(value):
        return None
    return known.kind if (_is_literal if known.any_literal else _is_key)(value) else None


def may_assign(name: str) -> bool:
    """Return False only if `assigned_kind` returns None for every value of this *name*."""
    return _known(name[-_LONGEST_NAME:]) is not None


# Which values can be secrets --------------------------------------------------------------------------------------

_LONGEST: Final = 256
_SHORTEST_KEY: Final = 12
_SPACE: Final = re.compile(r"\s")
_WORDS: Final = (
    "pass password passwd passphrase secret string str text example sample redacted hidden masked "
    "none null nil true false undefined required optional"
)


def _any_case(word: str) -> str:
    """Search for one letter or the other: fast, where a search for ``(?i:…)`` is slow."""
    return f"[{word[0]}{word[0].upper()}](?i:{word[1:]})"


def _first_letter(words: str) -> Iterator[str]:
    """One pattern for all *words* that begin with the same letter."""
    for letter, same in groupby(sorted(words.split()), key=itemgetter(0)):
        yield _any_case(f"{letter}(?:{'|'.join(word[1:] for word in same)})")


# Each alternative begins with a character or a set: the regex engine tries only those that can match. A value that
# begins with a digit or another letter than these is no placeholder, and most values do.
_NEVER_FIRST: Final = "".join(sorted({*ascii_lowercase, *digits} - {"x", *(word[0] for word in _WORDS.split())}))
_PLACEHOLDERS: Final = "|".join(
    (
        r"[*xX.•:$_-][*xX.•:$_-]*+|\$\w++|%\w(?:\w*+%)?",
        r"[^\W\d_a-z][^\W\d_A-Z]*+[?!.:…]*+",  # a label, as Password or Vergessen?
        *_first_letter(_WORDS),
    )
)
_PLACEHOLDER: Final = f"(?![{_NEVER_FIRST}])(?:{_PLACEHOLDERS})"
_OWN: Final = r"[mM][yY][_-]|[yY](?i:our)[_-]"
_REFERENCE: Final = r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++|[A-Za-z][A-Za-z]*+(?:_[A-Za-z]++)++"


def _stand_in(char: str, end: str) -> str:
    """A value of *char* before *end* that is a placeholder or a template, unless it is one with ``$``."""
    return (
        rf"(?:{_PLACEHOLDER}|\[redacted:[a-z-]++\]|%\(\w++\)\w){end}"
        rf"|(?:{_OWN}){char}*+{end}|\{{{char}*+(?<=\}}){end}|<{char}*+(?<=>){end}"
    )


_STANDS_IN: Final = re.compile(_stand_in(r"\S", r"\Z"))
_EXPANDS: Final = re.compile(r"\$[{(]")
_IS_REFERENCE: Final = re.compile(_REFERENCE)
_LOWER, _UPPER, _DIGIT, _FOREIGN = 1, 2, 16, 64
_CLASSES: Final = bytes(
    _LOWER * (char in ascii_lowercase)
    | _UPPER * (char in ascii_uppercase)
    | _DIGIT * (char in digits)
    | _FOREIGN * (char < "\x80" and not char.isalnum() and char not in "_.~+/=%@!&-")
    for char in map(chr, range(256))
)
_RANDOM_PIECE: Final = 3.4
"""The longest average run of one character class in a random value. Random text has about two; words have more."""


def _is_literal(value: str) -> bool:
    return len(value) <= _LONGEST and ("$" not in value or not _EXPANDS.search(value))


def _is_key(value: str) -> bool:
    """Whether *value* has letters and digits in random order, and is no path, URL or attribute of an object."""
    classes = _classes(value)
    if _DIGIT not in classes or _FOREIGN in classes or not (_LOWER in classes or _UPPER in classes):
        return False
    if value.startswith(("/", "./", "http:", "https:")) or ("." in value and _IS_REFERENCE.fullmatch(value)):
        return False
    return _SHORTEST_KEY <= len(value) <= _LONGEST and _is_random(classes)


def _classes(value: str) -> bytes:
    return value.encode("utf-8", "replace").translate(_CLASSES)


def _is_random(classes: bytes) -> bool:
    """Whether the pieces of a text are short: words (``abc``, ``Abc``, ``ABC``) and numbers.

    One large integer holds a byte per character, so that a few operations compare all neighbours.
    """
    number = int.from_bytes(classes, "big")
    starts = number & ~(number >> 8)
    capitals = starts & (starts >> 9)  # one upper-case letter and the lower-case letters after it are one piece
    return number.bit_count() <= _RANDOM_PIECE * (starts.bit_count() - capitals.bit_count())


# Names ------------------------------------------------------------------------------------------------------------


class _Name(NamedTuple):
    """A name whose value is a secret. Its pattern begins with *start*, which is fast to find."""

    start: str
    pattern: str
    kind: str
    any_literal: bool = False
    """True if the value need not look random."""
    sign: str = ""
    """The pattern without lookaround, if the pattern has any."""


_LONGEST_NAME: Final = 64
_KEY_WORDS: Final = ("api", "access", "account", "auth", "encryption", "signing", "secret")
_BEFORE_KEY: Final = "|".join(f"(?<={word}[_-]key)|(?<={word}key)" for word in _KEY_WORDS)
_NO_CURSOR: Final = "".join(  # cursors such as ``next_page_token`` are not secrets
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
_AT_END: Final = tuple((name, re.compile(rf"(?:{name.pattern})\Z", re.IGNORECASE)) for name in _NAMES)


@lru_cache(maxsize=4096)
def _known(name: str) -> _Name | None:
    """The known name that *name* ends with, if there is one."""
    return next((known for known, pattern in _AT_END if pattern.search(name)), None)


# Regular expressions decide all they can, as Python code is slower. Each form always matches once it has begun,
# with a value or with something else: no search begins again inside of a value.

_Form = tuple[str, str]
"""The patterns of a value, and of what stands in its place if it is none."""


def _unquoted(char: str, after: str, no_value: str) -> _Form:
    """A value of *char* before one of *after*. Code looks much the same: ``password=self.password``."""
    no_value = rf"(?:{_PLACEHOLDER}|{_REFERENCE}|{no_value})(?!{char})|(?:{_OWN}){char}*+"
    return rf"(?!{no_value}){char}{{4,}}+(?=[{after}]|\Z)", rf"(?:{no_value}|{char}{{4,}}+)"


_QUOTED_CHAR: Final = r"(?:[^\s\\\"']++|(?!(?P=quote))\S)"
_QUOTED: Final[_Form] = (
    rf"(?!{_stand_in(_QUOTED_CHAR, '(?=(?P=quote))')}){_QUOTED_CHAR}++(?=(?P=quote))",
    rf"{_QUOTED_CHAR}++",
)
_BARE: Final = _unquoted(r"[^\s\"'&;,()\[\]{}<>\\|`]", r" \t\r\n\"'&;,)\\|`", r"[^\W\d]\w*+(?=[,)])")
_LINE: Final = _unquoted(r"[^\s\"'`(){}\[\]<>$,;|\\]", r"\"'\r\n\\", r"[^\W\d_]++")
_VALUE, _OTHER = (
    rf"(?(equal){bare}|(?(quote){quoted}|{line}))" for bare, quoted, line in zip(_BARE, _QUOTED, _LINE, strict=True)
)
_ASSIGNED: Final = r"\\{0,4}[\"']?[ \t]{0,4}(?:=>|[:=])"
_KEY_SIGN: Final = r"[ \t]{0,4}\\{0,4}[\"']?[^\s\"'()\[\]{},;|\\<>]{12}"


def _assigned(name: _Name) -> NameRule:
    sign = f"(?i:{name.sign or name.pattern}){_ASSIGNED}"
    return NameRule(
        starts=(name.start,),
        kind=name.kind,
        pattern=re.compile(
            rf"(?P<before>{_any_case(name.pattern)}"
            rf"(?:(?P<equal>=(?!=))|{_ASSIGNED}[ \t]{{0,4}}(?P<quote>\\{{0,4}}[\"'])?))"
            rf"(?:(?P<value>{_VALUE})|(?P<other>{_OTHER}))"
        ),
        check=_is_literal if name.any_literal else _is_key,
        sign=sign if name.any_literal else sign + _KEY_SIGN,
    )


# Further forms ----------------------------------------------------------------------------------------------------


def _rule(kind: str, starts: str, pattern: str, check: Callable[[str], bool], *, sign: str, after: str) -> Rule:
    """A pattern whose only group passes *check*; *after* stands shortly before it."""
    compiled = re.compile(pattern)

    def find(text: str, folded: str) -> Iterator[SecretSpan]:
        seen = -1  # the last position of *after*
        for match in compiled.finditer(text):
            at = match.start()
            if seen < 0 or seen < at - _NEAR:
                seen = folded.rfind(after, max(0, at - _NEAR), at)
            if seen < 0:
                continue
            start, end = match.span(1)
            if check(text[start:end]):
                yield start, end, kind

    return Rule(tuple(starts.split()), find, f"(?i:{sign})")


def _literal(excluded: str, counts: str, end: str = "") -> str:
    """A value of *counts* characters before *end*, none of them *excluded*, that is no stand-in."""
    char = f"[^{excluded}]"
    return rf"(?!{_stand_in(char, end or f'(?!{char})')})(?P<value>{char}{{{counts}}}+){end}"


_NEAR: Final = 100
_USERINFO: Final = (
    r"(?P<before>://[^\s/:@\"'\\<>]{0,128}:)" + _literal(r"\s/:@\"'\\<>", "1,256", "(?=@)") + "(?!@sha[0-9])"
)
_NETRC: Final = r"[lL](?i:ogin)[ \t\n]{1,8}[^\s]{1,128}[ \t\n]{1,8}(?i:password)[ \t\n]{1,8}([^\s]{4,256}+)"
_CURL: Final = r"-[uU](?i:ser)?[ =][\"']?[^\s:\"'/]{1,64}:" + _literal(r"\s\"'", "4,256")
_SSHPASS: Final = r"(?P<before>[sS](?i:shpass -p) ?[\"']?)" + _literal(r"\s\"'", "4,256")
_COOKIE: Final = r"(?i:sess(?:ion)?_?id|connect\.sid|jsessionid|phpsessid)=([A-Za-z0-9%._-]{16,256}+)"
_DOCKER: Final = r'(?P<before>"[aA](?i:uth)"\s{0,4}:\s{0,4}")(?P<value>[A-Za-z0-9+/]{8,}+={0,2})(?=")'
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


def _find_authorization(text: str, folded: str) -> Iterator[SecretSpan]:
    for match in _AUTHORIZATION.finditer(folded):
        start, end = match.span("secret")
        value = text[start:end]
        if _is_basic(value) if match["basic"] else _is_bearer(value):
            yield start, end, "authorization"


_NETRC_SIGN: Final = r"login[ \t\n]{1,8}\S+[ \t\n]{1,8}password[ \t\n]"
_CURL_SIGN: Final = r"-u(?:ser)?[ =][\"']?[^\s:\"'/]+:"
_COOKIE_SIGN: Final = r"(?:sess(?:ion)?_?id|connect\.sid|jsessionid|phpsessid)="

NAME_RULES: Final[tuple[SecretRule, ...]] = (
    Rule(("authorization",), _find_authorization, r"(?i:authorization)\\{0,4}[\"']?[ \t]{0,4}[:=]"),
    NameRule(("://",), "url-password", re.compile(_USERINFO), _is_literal, r"://[^\s/@]*:[^\s/@]+@"),
    *map(_assigned, _NAMES),
    _rule("password", "login", _NETRC, lambda value: not value.isalpha(), after="machine ", sign=_NETRC_SIGN),
    _rule("password", "curl", _CURL, _is_literal, after="curl", sign=_CURL_SIGN),
    NameRule(("sshpass",), "password", re.compile(_SSHPASS), _is_literal, "(?i:sshpass -p)"),
    NameRule(('"auth"',), "docker-auth", re.compile(_DOCKER), _is_basic, '(?i:"auth")'),
    _rule(
        "cookie", "cookie", _COOKIE, lambda value: _is_random(_classes(value)), after="cookie", sign=_COOKIE_SIGN
    ),
)
