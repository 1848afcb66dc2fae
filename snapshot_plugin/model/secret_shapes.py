r"""What secrets look like in text: a table of shapes, precise, and linear in the length of the text.

A shape is tried only where one of its starts stands, so text without secrets costs a few substring searches.
No shape may start twice within a stretch it can run over: stretches are bounded, or possessive (``++``) behind a
guard on what stands before them. That is what keeps hostile text from taking quadratic time.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable
from string import ascii_uppercase
from typing import NamedTuple

__all__ = ["assigned_kind", "may_hold_secrets", "redact_text"]


class Shape(NamedTuple):
    """A kind of secret: how it starts, in lower case; the pattern whose group ``secret`` goes; a last look."""

    kind: str
    starts: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Callable[[re.Match[str]], bool]


def redact_text(text: str) -> tuple[str, Counter[str]]:
    """*text* with ``[redacted:kind]`` in the place of each secret, and how many of each kind there were."""
    found: Counter[str] = Counter()
    folded = _folded(text)
    present = {start for start in _STARTS if start in folded}
    for shape in _SHAPES if present else ():
        for start in shape.starts:
            if start in present:
                text = _replaced(shape, start, text, found)
    return text, found


def assigned_kind(name: str, value: str) -> str | None:
    """The kind of secret that *value* is because of its *name*, as ``password`` or ``dbPassword``; or None."""
    kind = next((kind for kind, names in _NAMES.items() if names.search(name)), None)
    return kind if kind and _is_literal(value) else None


def may_hold_secrets(text: str) -> bool:
    """Whether a shape may start somewhere in *text*. If not, nothing in it is a secret, whatever it is cut into.

    That goes for names, too: a name that makes its value a secret has such a start in it.
    """
    folded = _folded(text)
    return any(start in folded for start in _STARTS)


def _replaced(shape: Shape, start: str, text: str, found: Counter[str]) -> str:
    parts: list[str] = []
    folded = _folded(text)
    done, at = 0, folded.find(start)
    while at >= 0:
        match = shape.pattern.match(text, at)
        if match and shape.is_secret(match):
            parts += (text[done : match.start("secret")], f"[redacted:{shape.kind}]")
            done = match.end("secret")
            found[shape.kind] += 1
        at = folded.find(start, match.end() if match else at + 1)
    return "".join(parts) + text[done:]


def _folded(text: str) -> str:
    """*text* in lower case, with every character in its old place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)  # "İ".lower() is two characters


_LONGEST = 256
_LOWER = {ord(letter): letter.lower() for letter in ascii_uppercase}
_STAND_IN = re.compile(
    r"\[redacted:[a-z-]+\]"  # what we wrote ourselves
    r"|\$\w+|.*\$[{(].*|\{.*\}|<.*>|%\w|%\(\w+\)\w|%\w+%"  # variables and templates
    r"|[*xX.•:$_-]+|(?i:(?:my|your)[_-].*|example|sample|redacted|hidden|masked|pass(?:word|wd|phrase)?|secret"
    r"|string|str|text|none|null|nil|true|false|undefined|required|optional)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z]+(?:_[A-Za-z]+)+")
_LABEL = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]*[?!.:…]*")


def _is_literal(value: str) -> bool:
    """Whether this can be a password itself: no sentence, label or stand-in for one."""
    if not 0 < len(value) <= _LONGEST or re.search(r"\s", value):
        return False
    return not _STAND_IN.fullmatch(value) and not _LABEL.fullmatch(value)


def _is_quoted_literal(match: re.Match[str]) -> bool:
    return _is_literal(match["secret"])


def _is_bare_literal(match: re.Match[str]) -> bool:
    """Without quotes, code looks much the same: ``connect(password=password)``, ``password=self.password``."""
    value = match["secret"]
    in_a_call = match.string[match.end() : match.end() + 1] in (",", ")")
    return _is_literal(value) and not _REFERENCE.fullmatch(value) and not (in_a_call and value.isidentifier())


def _is_basic(match: re.Match[str]) -> bool:
    try:
        return b":" in base64.b64decode(match["secret"], validate=True)
    except (binascii.Error, ValueError):
        return False


# What may stand before a token: no character of a longer word, unless that is an escape like \n or %3D.
_ESCAPE = r"(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})"
_WORD = rf"(?:(?<![A-Za-z0-9_])|{_ESCAPE})"
_DASHED = rf"(?:(?<![A-Za-z0-9_-])|{_ESCAPE})"

_DIGIT = r"(?=[A-Za-z_-]*+[0-9])"
_RANDOM = rf"{_DIGIT}(?=[a-z0-9_-]*+[A-Z])"

# A key as agents see it: with escaped newlines, line numbers, diff marks and quote marks between its lines.
_GAP = r"(?:\s|\\+[nrt]|[>|+→:-]|\d{1,6}(?=[\s→:|]))*+"
_PEM = (
    r"-----BEGIN (?:[A-Z0-9]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}[A-Z][A-Za-z-]{{3,11}}: [^\n\\]{{1,99}}){{0,4}}+"
    rf"{_GAP}[A-Za-z0-9+/=]{{20,}}+(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)*+"
    r"(?:[\s\S]{0,48}?-----END (?:[A-Z0-9]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----)?"
)

_ASSIGNED = {"password": "password|passwd|passphrase", "secret": "client[_-]?secret|secret[_-]?access[_-]?key"}
_NAMES = {kind: re.compile(rf"(?i:{names})\Z") for kind, names in _ASSIGNED.items()}
_SECRETS = "client_secret client-secret clientsecret secret_access secret-access secretaccess"
"""Spelled out, because every other conversation has a client in it."""
_HEADER = r"(?i:authorization)\\{0,4}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,4}[\"']?"
_BEARER = rf"{_HEADER}(?i:bearer)[ \t]{{1,4}}(?P<secret>(?=[A-Za-z._~+/=-]*+[0-9])[A-Za-z0-9._~+/=-]{{8,}}+)"
_BASIC = rf"{_HEADER}(?i:basic)[ \t]{{1,4}}(?P<secret>[A-Za-z0-9+/]{{6,}}+={{0,2}})"
_AWS = r"(?i:secret_?access_?key)[^\w/+]{1,12}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
_USERINFO = r"://[^\s/:@\"'\\<>]{0,128}:(?P<secret>[^\s/:@\"'\\<>]{1,256}+)@(?!sha[0-9])"
_BARE = r"=(?P<secret>(?!=)[^\s\"'&;,()\[\]{}<>\\|`]{4,256}+)(?=[\s\"'&;,)\\|`]|\Z)"
_QUOTED = (
    r"\\{0,4}[\"']?[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}"
    r"(?P<quote>\\{0,4}[\"'])(?P<secret>(?:(?!(?P=quote))\S){1,256}+)(?P=quote)"
)


def _always(_match: re.Match[str]) -> bool:
    return True


def _token(kind: str, starts: str, guard: str, pattern: str) -> Shape:
    return Shape(kind, tuple(starts.split()), re.compile(f"{guard}(?P<secret>{pattern})"), _always)


def _named(
    kind: str, starts: str, pattern: str, is_secret: Callable[[re.Match[str]], bool] = _is_quoted_literal
) -> Shape:
    return Shape(kind, tuple(starts.split()), re.compile(pattern), is_secret)


_SHAPES = (
    _token("private-key", "-----begin", "", _PEM),
    _token("aws-access-key-id", "akia asia", _WORD, r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _named("aws-secret-key", "secret_access secretaccess", _AWS, _always),
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _WORD, r"gh[pousr]_[A-Za-z0-9]{36,}+"),
    _token("github-token", "github_pat_", _WORD, r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59,}+"),
    _token(
        "gitlab-token",
        "glpat-",
        _DASHED,
        r"glpat-[A-Za-z0-9_-]{20,}+(?:\.[0-9a-z]{2}\.?[0-9a-z]{7,9}(?![A-Za-z0-9_-]))?",
    ),
    _token("slack-token", "xox", _DASHED, r"xox[abceprs]-[0-9]{1,20}-[A-Za-z0-9-]{10,}+"),
    _token("anthropic-key", "sk-ant-", _DASHED, rf"sk-ant-{_RANDOM}[A-Za-z0-9_-]{{20,}}+"),
    _token("openai-key", "sk-", _DASHED, rf"sk-(?:proj|svcacct|admin)-{_RANDOM}[A-Za-z0-9_-]{{20,}}+"),
    _token("openai-key", "sk-", _DASHED, rf"sk-{_DIGIT}[A-Za-z0-9]{{32,}}+(?![_-])"),
    _token("google-key", "aiza", _DASHED, r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _token("stripe-key", "sk_live_ rk_live_", _WORD, r"[sr]k_live_[A-Za-z0-9]{16,}+"),
    _token("npm-token", "npm_", _WORD, r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    _token("pypi-token", "pypi-age", _DASHED, r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
    _token("jwt", "eyj", _DASHED, r"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{16,}+"),
    _named("authorization", "authorization", _BEARER, _always),
    _named("authorization", "authorization", _BASIC, _is_basic),
    _named("url-password", "://", _USERINFO),
    _named("password", "passw passp", f"(?i:{_ASSIGNED['password']}){_QUOTED}"),
    _named("password", "passw passp", f"(?i:{_ASSIGNED['password']}){_BARE}", _is_bare_literal),
    _named("secret", _SECRETS, f"(?i:{_ASSIGNED['secret']}){_QUOTED}"),
    _named("secret", _SECRETS, f"(?i:{_ASSIGNED['secret']}){_BARE}", _is_bare_literal),
)
"""In order of precision: what is redacted as a token is not looked at again as somebody's password."""
_STARTS = frozenset(start for shape in _SHAPES for start in shape.starts)
