"""A long coding session, made up from a seed: the same turns on every machine, about 17 KB each.

A turn is what a coding agent leaves behind: a question, some prose, one tool call with a long output (a source
file, a test log or a diff) and a conclusion. Identifiers follow Zipf's law and belong to files that the session
comes back to, so the text compresses like real source code; README.md has the comparison.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Turn", "turns"]

_OUTPUT_BYTES = 14_600


def _words(text: str) -> list[str]:
    return text.split()


_VERBS = _words(
    "load save open close parse render find merge split check build fetch store apply reset update create remove "
    "encode decode resolve schedule collect filter register validate append restore convert publish acquire release"
)
_NOUNS = _words(
    "session message token buffer segment header payload request response handler index cursor record cache "
    "config option account invoice customer order shipment template worker queue task event channel stream "
    "frame socket client server route path query result error report entry batch limit offset window"
)
_TYPES = ("str", "int", "bytes", "bool", "float", "Path", "None", "Any", "datetime", "list[str]", "dict[str, Any]")
_PROSE = _words(
    "the a of to in is that it we for this with not as on be by are when which from has after before only still "
    "because so now first then test fails passes looks reads writes calls returns raises expects leaves moves "
    "wrong missing empty slow same old new last next other whole small value file line change case branch"
)
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one turn adds to a session, as plain text."""

    number: int
    question: str
    plan: str
    tool: str
    arguments: dict[str, str]
    output: str
    answer: str


def turns(count: int, *, seed: int = 7) -> list[Turn]:
    """The first *count* turns of the session that belongs to *seed*."""
    writer = _Writer(random.Random(seed))
    return [writer.turn(number) for number in range(1, count + 1)]


class _Writer:
    """Writes one session. Every choice comes from one generator, so the seed decides everything."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = [self._identifier() for _ in range(3000)]
        self._ranks = [1 / (rank + 4) for rank in range(len(self._names))]
        self._files = [self._file() for _ in range(150)]

    def turn(self, number: int) -> Turn:
        """The next turn; its tool's output is most of it."""
        path, local = self._rng.choice(self._files)
        tool, output = self._rng.choice(
            [("read_file", self._source), ("run_tests", self._log), ("apply_patch", self._diff)]
        )
        return Turn(
            number=number,
            question=self._prose(70, local),
            plan=self._prose(90, local),
            tool=tool,
            arguments={"path": path, "reason": self._prose(12, local)},
            output=_filled(output(path, local)),
            answer=self._prose(110, local),
        )

    def _identifier(self) -> str:
        name = "_".join([self._rng.choice(_VERBS), *self._rng.sample(_NOUNS, self._rng.randint(1, 2))])
        return name if self._rng.random() < 0.7 else name.title().replace("_", "")

    def _file(self) -> tuple[str, list[str]]:
        """A path, and the identifiers that its text keeps coming back to."""
        names = self._rng.choices(self._names, self._ranks, k=60)
        return f"src/{self._rng.choice(_NOUNS)}/{names[0].lower()}.py", names

    def _name(self, local: list[str]) -> str:
        return self._rng.choice(local if self._rng.random() < 0.6 else self._names)

    def _prose(self, words: int, local: list[str]) -> str:
        out = [self._name(local) if self._rng.random() < 0.12 else self._rng.choice(_PROSE) for _ in range(words)]
        return " ".join(out).capitalize() + "."

    def _source(self, path: str, local: list[str]) -> Iterator[str]:
        yield f'"""{path}: {self._prose(12, local)}"""'
        number = 1
        while True:
            for line in self._function(local):
                yield f"{number:6d}\t{line}"
                number += 1

    def _function(self, local: list[str]) -> Iterator[str]:
        rng = self._rng
        args = ", ".join(f"{self._name(local)}: {rng.choice(_TYPES)}" for _ in range(rng.randint(0, 3)))
        yield f"    def {self._name(local)}(self, {args}) -> {rng.choice(_TYPES)}:"
        yield f'        """{self._prose(rng.randint(6, 14), local)}"""'
        for _ in range(rng.randint(3, 12)):
            yield from self._statement(local)
        yield ""

    def _statement(self, local: list[str]) -> Iterator[str]:
        one, two, three = (self._name(local) for _ in range(3))
        value = self._rng.randint(0, 4096)
        shapes: tuple[tuple[str, ...], ...] = (
            (f"        {one} = self.{two}({three})",),
            (f"        if {one} is None:", f"            return self._{two}[{value}]"),
            (f"        for {one} in {two}({three}, limit={value}):", f"            yield {one}.{three}"),
            (f'        raise ValueError(f"{self._prose(6, local)} {{{one}!r}}")',),
            (f"        self._{one}.{two}[{value}:] = [{three}(item) for item in {two}]",),
            (f"        # {self._prose(self._rng.randint(5, 11), local)}",),
            (f"        log.info({self._prose(5, local)!r}, {one}, {two})",),
            (f"        with {one}(self.{two}) as {three}:", f"            {three}.{one}({value})"),
        )
        yield from self._rng.choice(shapes)

    def _log(self, path: str, local: list[str]) -> Iterator[str]:
        clock = self._rng.randint(0, 80_000) * 1000
        while True:
            clock += self._rng.randint(1, 900)
            level, name = self._rng.choice(_LEVELS), self._name(local)
            moment = f"{clock // 3_600_000:02d}:{clock // 60_000 % 60:02d}:{clock / 1000 % 60:06.3f}"
            detail = self._prose(self._rng.randint(3, 9), local)
            yield f"2026-03-14 {moment} {level:<7} {path}:{name} [{self._rng.getrandbits(32):08x}] {detail}"
            if self._rng.random() < 0.15:
                share = self._rng.randint(1, 99)
                yield f"tests/test_{name.lower()}.py::test_{self._name(local)} PASSED [{share:3d}%]"

    def _diff(self, path: str, local: list[str]) -> Iterator[str]:
        yield f"--- a/{path}\n+++ b/{path}"
        while True:
            at = self._rng.randint(1, 2000)
            yield f"@@ -{at},{self._rng.randint(5, 30)} +{at},{self._rng.randint(5, 30)} @@"
            for line in self._function(local):
                changed = self._rng.random()
                if changed < 0.25:
                    yield "-" + line.replace(local[0], local[1])
                yield ("+" if changed < 0.35 else " ") + line


def _filled(lines: Iterator[str]) -> str:
    out, size = [], 0
    for line in lines:
        out.append(line)
        size += len(line) + 1
        if size >= _OUTPUT_BYTES:
            break
    return "\n".join(out)
