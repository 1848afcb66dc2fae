from __future__ import annotations

import copy
from typing import Any

import pytest

from snapshot_plugin import InvalidInput, InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.migrate import CHAIN, Chain, MigrationStep, StepInfo, load_document, migrate, plan_migration
from snapshot_plugin.model import CURRENT_VERSION

Raw = dict[str, Any]

SESSION: Raw = {"session_id": "s-1", "created_at": "2026-01-01T00:00:00Z", "messages": []}


def leave_a_trace(document: Raw) -> Raw:
    document.setdefault("trace", []).append(document["version"])
    return document


def explode(document: Raw) -> Raw:
    raise AssertionError


def steps(*versions: int) -> list[MigrationStep]:
    return [MigrationStep(version, f"from {version}", leave_a_trace) for version in versions]


@pytest.mark.requirement("STORE-MIGRATE-GAPS")
@pytest.mark.parametrize(
    "versions",
    [(1, 3), (2, 3), (1, 2, 2), (1, 2, 2, 3), (2, 1, 3), (1, 2), (1, 2, 3, 4), (0, 1, 2, 3), ()],
    ids=["gap", "no start", "double at the end", "double", "order", "too short", "too long", "too early", "empty"],
)
def test_chain_with_a_missing_duplicate_or_misplaced_step_is_refused(versions: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Chain(steps(*versions), current=4)

    assert caught.value.code == "invalid_input"
    assert isinstance(caught.value, ValueError)


def test_the_default_chain_ends_at_the_version_the_model_writes() -> None:
    assert CHAIN.current == CURRENT_VERSION


@pytest.mark.requirement("ORBIT-MIGRATE-OLD")
def test_steps_run_once_each_in_order_from_the_version_of_the_document() -> None:
    chain = Chain(steps(1, 2, 3, 4), current=5)

    assert chain.migrate({**SESSION, "version": 2}) == {**SESSION, "version": 5, "trace": [2, 3, 4]}


def test_chain_sets_the_version_even_if_a_step_forgets() -> None:
    chain = Chain([MigrationStep(1, "forgets", lambda _: dict(SESSION))], current=2)

    assert chain.migrate({**SESSION, "version": 1})["version"] == 2


@pytest.mark.requirement("STORE-MIGRATE-DRY-RUN")
def test_dry_run_names_the_steps_without_running_them() -> None:
    chain = Chain([MigrationStep(1, "one", explode), MigrationStep(2, "two", explode)], current=3)

    assert chain.plan({**SESSION, "version": 1}) == (
        StepInfo(from_version=1, to_version=2, description="one"),
        StepInfo(from_version=2, to_version=3, description="two"),
    )


def test_plan_lists_the_remaining_steps_for_each_version() -> None:
    def ahead(raw: Raw) -> list[tuple[int, int]]:
        return [(info.from_version, info.to_version) for info in plan_migration(raw)]

    assert ahead({**SESSION, "version": 1}) == [(1, 2)]
    assert ahead({**SESSION, "version": 2}) == []


def test_every_step_has_a_description_of_one_line() -> None:
    descriptions = [info.description for info in plan_migration({**SESSION, "version": 1})]

    assert all(text and "\n" not in text for text in descriptions)


@pytest.mark.requirement("STORE-MIGRATE-INPUT")
def test_input_is_never_mutated() -> None:
    raw = {**SESSION, "version": 1, "config": {"custom": {"model": "m"}}}
    before = copy.deepcopy(raw)

    migrate(raw)

    assert raw == before


def test_the_result_shares_nothing_with_the_input() -> None:
    raw = {**SESSION, "version": 1, "metadata": {"notes": ["a"]}}

    migrate(raw)["metadata"]["notes"].append("b")

    assert raw["metadata"] == {"notes": ["a"]}


@pytest.mark.requirement("ORBIT-MIGRATE-UNKNOWN", "ORBIT-ERROR-VERSION")
@pytest.mark.parametrize("act", [migrate, plan_migration, load_document])
@pytest.mark.parametrize("version", [CURRENT_VERSION + 1, 10**30, "2", "two", 2.0, True, -1, 0, [2], {}])
def test_newer_or_invalid_version_is_refused(act: Any, version: Any) -> None:
    with pytest.raises(InvalidSnapshotVersion) as caught:
        act({**SESSION, "version": version})

    assert caught.value.code == "version_unsupported"
    assert caught.value.session_id == "s-1"


def test_a_newer_document_is_refused_as_newer_even_if_its_shape_is_unknown() -> None:
    with pytest.raises(InvalidSnapshotVersion):
        migrate({"version": CURRENT_VERSION + 1, "sessionId": "renamed"})


@pytest.mark.parametrize(
    "raw", [None, 3, "text", [], {}, {"hello": "world"}, {"version": 1}, {"version": 2, "id": "x"}]
)
def test_document_that_is_not_a_session_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidSnapshot) as caught:
        migrate(raw)

    assert caught.value.code == "invalid_snapshot"


def test_a_session_without_a_version_is_not_guessed_to_be_current() -> None:
    with pytest.raises(InvalidSnapshot):
        load_document(SESSION)


def test_an_error_inside_a_step_names_the_session() -> None:
    with pytest.raises(InvalidSnapshot) as caught:
        migrate({**SESSION, "version": 1, "messages": "hello"})

    assert caught.value.session_id == "s-1"


def test_a_document_that_does_not_fit_the_model_is_refused_with_its_session() -> None:
    with pytest.raises(InvalidSnapshot) as caught:
        load_document({**SESSION, "version": 1, "messages": [{"role": "ghost", "content": "boo"}]})

    assert caught.value.session_id == "s-1"
    assert "messages.0.role" in caught.value.message
    assert "boo" not in str(caught.value)
