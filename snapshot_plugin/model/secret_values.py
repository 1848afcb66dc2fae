"""Which values can be secrets, and which only stand in for one: variables, placeholders, references, labels."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Final

__all__ = [
    "OWN", "PLACEHOLDER", "REFERENCE", "Check", "decoded", "is_basic", "is_bearer", "is_key", "is_literal",
    "is_no_path", "is_password", "is_stand_in", "is_strong", "is_variable", "is_varied", "stand_in",
]  # fmt: skip

Check = Callable[[str], bool]
"""Whether a value that a pattern matched is a secret."""

# Stand-ins --------------------------------------------------------------------------------------------------------

_WORDS: Final = (
    "pass password passwd passphrase secret string str text example sample redacted hidden masked "
    "none null nil true false undefined required optional changeme"
)


def _first_letter(words: str) -> Iterator[str]:
    """One pattern for all *words* that begin with the same letter, in upper or lower case."""
    for letter, same in groupby(sorted(words.split()), key=itemgetter(0)):
        yield f"[{letter}{letter.upper()}](?i:{'|'.join(word[1:] for word in same)})"


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
PLACEHOLDER: Final = f"(?![{_NEVER_FIRST}])(?:{_PLACEHOLDERS})"
OWN: Final = r"[mM][yY][_-]|[yY](?i:our)[_-]"
"""The beginning of ``my-password`` or ``YOUR_API_KEY``."""
REFERENCE: Final = r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++|[A-Za-z][A-Za-z]*+(?:_[A-Za-z]++)++"
"""A name in a program: ``self.password``, ``get_password``."""


def stand_in(char: str, end: str) -> str:
    """The pattern of a value of *char* before *end* that is a placeholder or a template, except one with ``$``."""
    return (
        rf"(?:{PLACEHOLDER}|\[redacted:[a-z-]++\]|%\(\w++\)\w){end}"
        rf"|(?:{OWN}){char}*+{end}|\{{{char}*+(?<=\}}){end}|<{char}*+(?<=>){end}"
    )


_STAND_IN: Final = re.compile(stand_in(r"\S", r"\Z"))
_VARIABLE: Final = re.compile(r"\$\w+|\$?\{.*\}|<.*>|%\w+%|\[redacted:[a-z-]+\]|\**", re.DOTALL)
_EXPANDS: Final = re.compile(r"\$[{(]")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++")


def is_stand_in(value: str) -> bool:
    """Whether *value* only stands for a secret: ``password``, ``<token>``, ``{{ key }}``, ``YOUR_KEY``, ``**``."""
    return _STAND_IN.match(value) is not None


def is_variable(value: str) -> bool:
    """Whether *value* is empty or names where the secret comes from: ``${API_KEY}``, ``<token>``, ``****``."""
    return _VARIABLE.fullmatch(value) is not None


# Secrets ----------------------------------------------------------------------------------------------------------

_SHORTEST_KEY: Final = 12
_LONG_PART: Final = 16
_LONG_KEY: Final = 20
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
_PHRASE: Final = re.compile(
    r"(?:[A-Za-z][a-z]*+|[A-Z]++|[0-9]{1,4})(?:[-_./](?:[A-Za-z][a-z]*+|[A-Z]++|[0-9]{1,4}))++"
)
"""Words and short numbers, as in ``from-the-vault-2``."""
_NUMBERS: Final = re.compile("[0-9]+")
_SIGNS: Final = re.compile(r"[0-9!@#$%^&*+=~]")
_NOT_A_PASSWORD: Final = re.compile(r"(?i:base|sha|md|utf|pbkdf|argon|aes|rsa|v)-?\d|[!@#%^&*+=~][A-Za-z]+\Z")


def is_literal(value: str) -> bool:
    """Whether *value* is no expression that a shell or template expands."""
    return "$" not in value or not _EXPANDS.search(value)


def is_no_path(value: str) -> bool:
    """Whether *value* is a literal and no directory, as in ``PWD=/home/me``."""
    return not value.startswith(("/", "~", "./", "C:\\")) and is_literal(value)


def is_strong(value: str) -> bool:
    """Whether a word after a flag or in a call is a password: it has letters, and digits or signs."""
    has_both = _SIGNS.search(value) and any(map(ascii_letters.__contains__, value))
    return bool(has_both) and is_literal(value) and not is_stand_in(value)


def is_password(value: str) -> bool:
    """Whether a word in a sentence is a password: `is_strong`, and not ``sha256-hashed`` or ``!vault``."""
    return is_strong(value) and not _NOT_A_PASSWORD.match(value) and not _DOTTED.fullmatch(value)


def is_varied(value: str) -> bool:
    """Whether *value* is not a placeholder such as ``T00000000/B00000000/XXXXXXXX``."""
    return len(set(value)) > 8  # noqa: PLR2004 — a random value of 20 characters has more


def is_key(value: str) -> bool:
    """Whether *value* has letters and digits in random order, and is no path, URL or attribute of an object."""
    classes = _classes(value)
    if _DIGIT not in classes or _FOREIGN in classes or not (_LOWER in classes or _UPPER in classes):
        return False
    if len(value) < _SHORTEST_KEY or value.startswith(("/", "./", "http:", "https:")):
        return False
    if "." in value and _DOTTED.fullmatch(value):  # an attribute of an object, unless a part is random by itself
        parts = value.replace("_", ".").split(".")
        return any(len(part) >= _LONG_PART and _is_random(_classes(part)) for part in parts)
    if _is_random(classes):
        return not _PHRASE.fullmatch(value)
    return len(value) >= _LONG_KEY and value.isalnum() and len(_NUMBERS.findall(value)) > 2  # noqa: PLR2004 — a word has one number or two


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


def is_bearer(value: str) -> bool:
    """Whether the word after ``Bearer`` is a token: words are shorter, or have no digit."""
    return len(value) >= 8 and any(map(str.isdigit, value)) and not is_stand_in(value)  # noqa: PLR2004 — see above


def decoded(value: str) -> str:
    """The text that *value* is in base64, or nothing."""
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def is_basic(value: str) -> bool:
    """Whether *value* is ``user:password`` in base64."""
    text = decoded(value)
    return ":" in text and text.isprintable()
