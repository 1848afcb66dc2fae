"""Each row of the table of secrets: two examples that it finds, two texts that stay as they are."""

from __future__ import annotations

import time
import timeit
from collections import Counter

import pytest

from snapshot_plugin.model import secret_table
from snapshot_plugin.model.redact import redact
from snapshot_plugin.model.secret_shapes import RULES, Shape
from tests.model import secret_examples as examples
from tests.model.secret_examples import filled
from tests.tries import some_of

ROWS = [
    *examples.KEY_BLOCKS,
    *((kind, one, two, short, f"x{one}") for kind, one, two, short in examples.TOKENS),
    *examples.ENCODED,
    *examples.FORMS,
    *examples.NAMES,
]


def test_each_row_has_its_examples() -> None:
    assert [rule.kind for rule in RULES if isinstance(rule, Shape)] == [row[0] for row in ROWS]
    for name in ("TOKENS", "KEY_BLOCKS", "FORMS", "NAMES"):
        assert len(getattr(secret_table, name)) == len(getattr(examples, name))
    assert all(len({*row}) == 5 for row in ROWS)


@pytest.mark.requirement("STORE-VALUE-REDACT")
def test_row_finds_its_examples_and_nothing_in_its_counter_examples() -> None:
    for rule, (kind, *texts) in zip(RULES, ROWS, strict=True):
        one, two, *harmless = map(filled, texts)

        for text in (one, two):
            assert f"[redacted:{kind}]" in rule.replace(text, text.lower(), Counter())
            assert redact(text) == redact(text, rules=list(RULES))
            once = redact(text)[0]
            assert "[redacted:" in once
            assert redact(once)[0] == once
        for text in harmless:
            assert redact(text)[0] == text


def test_row_takes_linear_time_for_text_full_of_beginnings() -> None:
    for kind, first, *_ in some_of(ROWS):
        example = filled(first)
        unit = example[: max(4, len(example) * 2 // 3)]
        texts = [unit * (size // len(unit)) for size in (8_000, 64_000)]

        tries = (tuple(map(_seconds, texts)) for _ in range(3))

        # Eight times the text; quadratic time would be 64 times as long.
        assert any(long < 20 * short + 0.02 for short, long in tries), (kind, unit)


WORST = ['pwd:"\'"', "psk=non;", "token=a1b2c3d4e5f6 ", "A", "cookie:a", "token for a ", "://:a@"]


@pytest.mark.parametrize("unit", WORST)
def test_worst_texts_take_less_than_a_second_for_5_mb(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))

    assert min(_seconds(text) for _ in range(3)) < 0.2


def _seconds(text: str) -> float:
    return timeit.timeit(lambda: redact(text), number=1, timer=time.process_time)
