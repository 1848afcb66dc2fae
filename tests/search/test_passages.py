"""What can be searched never holds a secret, however few messages are looked at closely."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import Message
from snapshot_plugin.model import TextBlock, ToolCallBlock
from snapshot_plugin.model.redact import redact
from snapshot_plugin.search.passages import passages
from tests.model.test_redact import ASSIGNMENTS, MORE_TOKENS, TOKENS
from tests.tries import tries

SECRETS = [
    *TOKENS.values(),
    *(token for _, token in MORE_TOKENS),
    *(form.format(key) for _, form, key in ASSIGNMENTS),
]
NAMES = ["password", "dbPassword", "DB_PASSWD", "passphrase", "clientSecret", "client-secret", "CLIENT_SECRET"]
NAMES += ["secretAccessKey", "aws_secret-access_key", "Authorization", "proxy-authorization"]


_harmless = st.sampled_from(["a client said so", "the secret of a good life", "İstanbul", "x", "hunter2hunter"])
_texts = st.sampled_from(SECRETS) | _harmless
_json = st.recursive(
    _texts | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "note"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(_texts, _texts, _texts, _json, _json)
@tries(300)
def test_searchable_text_equals_the_text_after_full_redaction(
    title: str, kind: str, text: str, given_: Any, output: Any
) -> None:
    call = ToolCallBlock(tool_call_id="c", title=title, kind=kind, raw_input=given_, raw_output=output)
    message = Message(role="assistant", content=(TextBlock(text=text), call))
    clean = redact(message)[0]

    (found,) = passages([message.raw()])
    (expected,) = passages([clean.raw()])

    assert found == expected
    assert redact(found.body)[0] == found.body


@pytest.mark.parametrize("name", NAMES)
def test_values_secret_only_by_name_are_left_out(name: str) -> None:
    value = "Bearer abcdefgh1234" if "uthorization" in name else "tr0ub4dor"
    message = Message(role="assistant", content=(ToolCallBlock(tool_call_id="c", raw_input={name: value}),))
    (found,) = passages([message.raw()])
    assert value.rpartition(" ")[2] not in found.body
