"""Each row of the table of secrets: two examples that it finds, two texts that stay as they are."""

from __future__ import annotations

from collections import Counter

import pytest

from snapshot_plugin.model import secret_table
from snapshot_plugin.model.redact import redact
from snapshot_plugin.model.secret_shapes import RULES, Shape
from tests.model import secret_examples as examples
from tests.model.secret_examples import filled

ROWS = [
    *examples.KEY_BLOCKS,
    *((kind, one, two, short, f"x{one}") for kind, one, two, short in examples.TOKENS),
    *examples.ENCODED,
    *examples.FORMS,
    *examples.NAMES,
]
NUMBERS = range(len(RULES))


def test_each_row_has_its_examples() -> None:
    assert [rule.kind for rule in RULES if isinstance(rule, Shape)] == [row[0] for row in ROWS]
    for name in ("TOKENS", "KEY_BLOCKS", "FORMS", "NAMES"):
        assert len(getattr(secret_table, name)) == len(getattr(examples, name))
    assert all(len({*row}) == 5 for row in ROWS)


@pytest.mark.requirement("STORE-VALUE-REDACT")
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number}-{ROWS[number][0]}")
def test_row_finds_its_examples_and_nothing_in_its_counter_examples(number: int) -> None:
    kind, *texts = ROWS[number]
    one, two, *harmless = map(filled, texts)

    for text in (one, two):
        assert f"[redacted:{kind}]" in RULES[number].replace(text, text.lower(), Counter())
        assert redact(text) == redact(text, rules=list(RULES))
        assert "[redacted:" in redact(text)[0]
    for text in harmless:
        assert redact(text)[0] == text
