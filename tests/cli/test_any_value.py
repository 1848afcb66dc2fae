"""Whatever is accepted can be loaded, listed, searched, shown, compared, resumed and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from snapshot_plugin import FilesystemStore, InvalidSnapshot, Message, SessionSnapshot
from snapshot_plugin.model import Metrics, ToolCallBlock, parse_block
from snapshot_plugin.model.frozen import MAX_DEPTH
from snapshot_plugin.model.value import MAX_NUMBER
from tests.cli.conftest import Asnap, saved
from tests.tries import tries

NOW = datetime(2026, 11, 16, tzinfo=UTC)
LONE = "half \ud83d of a pair"

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("list", "--all"),
    ("list", "--all", "--json"),
    ("search", "half"),
    ("search", "half", "--json"),
    ("stats",),
    ("stats", "--json"),
    ("show", "s"),
    ("show", "s", "--json"),
    ("show", "s", "--history", "--json"),
    ("why", "s", "--json"),
    ("diff", "s@1", "s@2"),
    ("diff", "s@1", "s@2", "--json"),
    ("resume", "s", "--print", "--with", "true"),
    ("resume", "s", "--json", "--with", "true"),
    ("export", "s", "--format", "json"),
    ("export", "s", "--format", "markdown"),
    ("export", "s", "--format", "html"),
    ("check",),
)


def nested(depth: int, leaf: Any = "x") -> Any:
    for number in range(depth):
        leaf = [leaf] if number % 2 else {"k": leaf}
    return leaf


def session(**fields: Any) -> SessionSnapshot:
    return SessionSnapshot(**{"session_id": "s", "created_at": NOW, "updated_at": NOW, **fields})


def said(value: Any) -> tuple[Message, ...]:
    call = ToolCallBlock(tool_call_id="1", raw_input=value, raw_output=value)
    return Message(role="user", content="half", metadata={"m": value}), Message(role="assistant", content=[call])


EVERYWHERE = {
    "lone surrogates": session(
        title=LONE,
        tags=(LONE,),
        provider_type=LONE,
        current_task=LONE,
        plan=[{"content": LONE}],
        config={"cwd": f"/tmp/{LONE}", "model": LONE, "mode": LONE, "options": {LONE: LONE}},
        agent={"name": LONE, "command": [LONE]},
        messages=[Message(role="user", content=LONE), *said({LONE: LONE})],
        metadata={"note": LONE, LONE: LONE},
    ),
    "integers of 4300 digits": session(messages=said(-(10**4300) + 1), metadata={"n": 10**4300 - 1}),
    "nesting": session(
        messages=said(nested(MAX_DEPTH - 1)),
        plugins={"p": nested(MAX_DEPTH - 1)},
        memory={"m": nested(MAX_DEPTH - 1)},
        metadata={"m": nested(MAX_DEPTH - 1)},
    ),
    "the largest numbers": session(
        metrics=Metrics(total_tokens=MAX_NUMBER, turns=MAX_NUMBER, cost=1e308, duration_seconds=1e308),
        messages=[Message(role="user", content="half", token_count=MAX_NUMBER)],
    ),
    "numbers of an earlier release": SessionSnapshot.model_validate(
        {
            **session().raw(),
            "metrics": {"total_tokens": 10**400, "turns": 10**400, "input_tokens": 10**4200},
            "messages": [{"role": "user", "content": "half", "token_count": 10**400}],
        }
    ),
    "the ends of time": session(
        created_at=datetime.min.replace(tzinfo=UTC),
        updated_at=datetime.max.replace(tzinfo=UTC),
        messages=[Message(role="user", content="half", timestamp=datetime.min.replace(tzinfo=UTC))],
    ),
}


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_commands_work_with_every_value_that_is_accepted(asnap: Asnap, place: Path, kind: str) -> None:
    first = EVERYWHERE[kind]
    saved(place, first, first.append(Message(role="user", content=LONE)))

    for words in COMMANDS:
        ran = asnap(*words)
        assert ran.code == 0, (words, ran.err)
        if "--json" in words:
            json.loads(ran.out)


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_bundles_carry_every_value_that_is_accepted(asnap: Asnap, home: Path, place: Path, kind: str) -> None:
    saved(place, EVERYWHERE[kind])

    assert asnap("export", "s", "-o", home / "s.asnap").code == 0
    assert asnap("import", home / "s.asnap", "--store", home / "other").code == 0

    async def load() -> SessionSnapshot:
        async with FilesystemStore(home / "other") as store:
            return await store.load("s")

    assert anyio.run(load) == EVERYWHERE[kind]


@pytest.mark.parametrize(
    "make",
    [
        lambda: session(metadata={"n": 10**4300}),
        lambda: session(metadata={"n": [-(10**5000)]}),
        lambda: Message(role="user", metadata={"n": 10**4300}),
        lambda: ToolCallBlock(tool_call_id="1", raw_output=10**4300),
        lambda: parse_block({"type": "text", "text": "x", "n": nested(MAX_DEPTH)}),
        lambda: session(metadata=nested(MAX_DEPTH + 2)),
        lambda: session().evolve(plugins=nested(MAX_DEPTH + 2)),
        lambda: Metrics(total_tokens=10**400),
        lambda: Metrics().evolve(total_tokens=2**63),
        lambda: Message(role="user", token_count=-(2**63)),
    ],
)
def test_values_that_could_not_be_read_back_or_shown_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidSnapshot):
        make()


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    with pytest.raises(InvalidSnapshot):
        session(metadata={"a": endless})


TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
NUMBERS = st.integers() | st.integers(-MAX_NUMBER, MAX_NUMBER) | st.integers(-(10**4300) + 1, 10**4300 - 1)
ANYTHING = st.recursive(
    SCALARS | NUMBERS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)


@tries(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    title=TEXT, tokens=st.integers(-MAX_NUMBER, MAX_NUMBER), value=ANYTHING, depth=st.integers(0, MAX_DEPTH - 30)
)
def test_any_accepted_value_round_trips_and_can_be_shown(
    *, asnap: Asnap, tmp_path_factory: pytest.TempPathFactory, title: str, tokens: int, value: Any, depth: int
) -> None:
    made = session(
        title=title,
        messages=said(nested(depth, value)),
        metrics=Metrics(total_tokens=tokens),
        metadata={"v": value},
    )
    place = tmp_path_factory.mktemp("store")

    async def through_the_store() -> SessionSnapshot:
        async with FilesystemStore(place) as store:
            await store.save(made)
            await store.save(made.append(Message(role="user", content=title)))
            return await store.load("s", at=1)

    assert anyio.run(through_the_store) == made
    for words in (("list", "--all", "--json"), ("search", "half"), ("show", "s", "--json"), ("stats", "--json")):
        ran = asnap(*words, "--store", place)
        assert ran.code == 0, (words, ran.err)
