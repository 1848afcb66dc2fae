"""Lines and messages: whatever comes, whole lines go on byte for byte, and only JSON objects are messages."""

from __future__ import annotations

import json
import math
from time import process_time
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from snapshot_plugin.acp.messages import (
    RESOURCE_NOT_FOUND,
    asking_for_version_1,
    encode,
    failure,
    notification,
    parse,
    request,
    success,
)
from snapshot_plugin.system.lines import Lines
from tests.tries import tries


@tries(60)
@given(st.lists(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\x0b", b"\xff"]), max_size=8).map(b"".join)))
def test_lines_keep_every_byte_and_split_only_at_newlines(reads: list[bytes]) -> None:
    lines = Lines()
    out = [line for data in reads for line in lines.feed(data)]
    assert b"".join(out) + lines.rest() == b"".join(reads)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in out)
    assert b"\n" not in lines.rest()


@tries(60)
@given(st.lists(st.lists(st.sampled_from([b"a", b"\n", b"\r"]), max_size=8).map(b"".join)))
def test_lines_beyond_the_limit_are_replaced_and_no_other(reads: list[bytes]) -> None:
    lines = Lines(4, lambda _head, _tail: b"!\n")
    out = [line for data in reads for line in lines.feed(data)]
    whole = [line + b"\n" for line in b"".join(reads).split(b"\n")[:-1]]
    assert out == [line if len(line) <= 4 else b"!\n" for line in whole]


def test_line_of_many_megabytes_is_split_in_linear_time() -> None:
    def seconds(megabytes: int) -> float:
        lines, read, begun = Lines(), b"x" * (1 << 16), process_time()
        for _ in range(megabytes * 16):
            assert lines.feed(read) == []
        (line,) = lines.feed(b"\n")
        assert len(line) == (megabytes << 20) + 1
        return process_time() - begun

    seconds(1)
    # Both are too large for the caches and for the allocator's own blocks.
    assert min(seconds(100) for _ in range(3)) < 3 * min(seconds(50) for _ in range(3))


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":null,"method":"x"}\n',
        b'  {"a": "\\ud800"}\r\n',
        '{"a": "ü🎈"}'.encode(),
        b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
)
def test_json_objects_parse_as_messages(line: bytes) -> None:
    assert parse(line) == json.loads(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"Debugger attached.\n",
        b'{"a": 1\n',
        b"[1, 2]\n",
        b'"text"\n',
        b"null\n",
        b'{"a": "\xff\xfe"}\n',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_lines_that_are_not_json_objects_parse_as_none(line: bytes) -> None:
    assert parse(line) is None


def test_numbers_beyond_json_are_replaced_by_their_names() -> None:
    assert parse(b'{"a": NaN, "b": [-Infinity], "c": 1.5}') == {"a": "NaN", "b": ["-Infinity"], "c": 1.5}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@tries(60, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(st.characters()), json_values | st.text(st.characters()), max_size=4))
def test_message_is_written_as_one_line_and_round_trips(message: dict[str, Any]) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse(line) == message


def test_messages_we_build_are_json_rpc() -> None:
    assert request("a", "m", {"x": 1}) == {"jsonrpc": "2.0", "id": "a", "method": "m", "params": {"x": 1}}
    assert notification("m", {}) == {"jsonrpc": "2.0", "method": "m", "params": {}}
    assert success(7, None) == {"jsonrpc": "2.0", "id": 7, "result": None}
    plain = {"code": RESOURCE_NOT_FOUND, "message": "no such thing"}
    assert failure("a", RESOURCE_NOT_FOUND, "no such\nthing", {"sessionId": "s"})["error"] == {
        **plain,
        "data": {"details": "no such thing", "sessionId": "s"},
    }


def test_an_offer_of_a_later_version_is_lowered_and_its_own_fields_stay() -> None:
    info = {"name": "c", "version": "1"}
    able: dict[str, Any] = {"auth": {"terminal": {}}, "elicitation": {"form": {}}, "new": {}}
    offer = {"protocolVersion": 2, "info": info, "capabilities": able}
    assert asking_for_version_1(offer) == {
        "protocolVersion": 1,
        "clientInfo": info,
        "clientCapabilities": {"auth": {"terminal": True}, "elicitation": {"form": {}}},
        "info": info,
        "capabilities": able,
    }
    both = {"protocolVersion": 2, "clientCapabilities": {"terminal": True}, "capabilities": {}}
    assert asking_for_version_1(both)["clientCapabilities"] == {"terminal": True}
    for as_it_is in ({"protocolVersion": 1}, {"protocolVersion": "2"}, {}):
        assert asking_for_version_1(as_it_is) is as_it_is


def test_a_number_too_large_for_a_float_still_parses() -> None:
    message = parse(b'{"a": 1e999}')
    assert message is not None
    assert math.isinf(message["a"])
