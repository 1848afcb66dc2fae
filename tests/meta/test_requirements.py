from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from snapshot_plugin.testing import StoreContract
from tests.meta.marked_tests import Module, marked_tests
from tests.requirement_lists.contract import CONTRACT
from tests.requirement_lists.requirement import differs, done, section, to_do
from tests.requirements import PREFIXES, REQUIREMENTS, Requirement, prefix_of, report

ROOT = Path(__file__).parents[2]


class Mark(NamedTuple):
    requirement_id: str
    place: str


def marks_in(source: str, place: str = "test_example.py") -> Iterator[Mark]:
    """Every id named by a requirement mark: on a test, a test class, a parameter, a module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "requirement":
            continue
        if ast.unparse(node.func) == "pytest.mark.requirement":
            yield from (Mark(_literal(argument, place), f"{place}:{node.lineno}") for argument in node.args)


def _literal(argument: ast.expr, place: str) -> str:
    assert isinstance(argument, ast.Constant), f"{place}:{argument.lineno}: name requirements by plain text"
    return str(argument.value)


@cache
def marks_of_tests() -> list[Mark]:
    files = [(file, str(file.relative_to(ROOT))) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    return [mark for file, place in files for mark in marks_in(file.read_text("utf-8"), place)]


def marks_of_the_contract() -> list[Mark]:
    return [Mark(requirement_id, name) for name, ids in CONTRACT.items() for requirement_id in ids]


def all_marks() -> list[Mark]:
    return [*marks_of_tests(), *marks_of_the_contract()]


def unproven(requirements: tuple[Requirement, ...], marks: list[Mark]) -> list[str]:
    proven = {mark.requirement_id for mark in marks}
    return [one.id for one in requirements if one.status == "done" and one.id not in proven]


def unknown(requirements: tuple[Requirement, ...], marks: list[Mark]) -> list[Mark]:
    known = {one.id for one in requirements}
    return [mark for mark in marks if mark.requirement_id not in known]


def test_every_promise_marked_done_has_a_test() -> None:
    assert unproven(REQUIREMENTS, all_marks()) == []


def test_every_mark_names_an_existing_promise() -> None:
    assert unknown(REQUIREMENTS, all_marks()) == []


def test_every_mark_sits_on_a_test_that_asserts_something() -> None:
    assert [test.place for test in marked_tests() if not test.asserts] == []


def test_no_mark_is_on_a_test_that_is_always_skipped_or_xfailed() -> None:
    assert [test.place for test in marked_tests() if not test.can_pass] == []


def test_every_mark_belongs_to_a_test() -> None:
    found = {name for test in marked_tests() for name in test.ids}
    assert sorted({mark.requirement_id for mark in marks_of_tests()} - found) == []


def test_every_contract_test_named_as_a_proof_exists() -> None:
    assert [name for name in CONTRACT if not callable(getattr(StoreContract, name, None))] == []


def test_public_contract_suite_carries_no_internal_marks() -> None:
    files = sorted((ROOT / "snapshot_plugin/testing").rglob("*.py"))
    assert [mark for file in files for mark in marks_in(file.read_text("utf-8"), file.name)] == []


def test_every_promise_has_an_id_of_its_own() -> None:
    times = Counter(one.id for one in REQUIREMENTS)
    assert [name for name, count in times.items() if count > 1] == []


def test_every_id_begins_with_the_prefix_of_its_source() -> None:
    assert [one.id for one in REQUIREMENTS if prefix_of(one.id) is None] == []
    assert {prefix_of(one.id) for one in REQUIREMENTS} == set(PREFIXES)


@pytest.mark.parametrize("part", ["id", "source", "promise"])
def test_no_field_of_a_promise_is_empty(part: str) -> None:
    assert [one.id for one in REQUIREMENTS if not getattr(one, part).strip()] == []


def test_promises_from_our_pages_name_an_existing_file() -> None:
    places = {one.source.split(": ")[0].split(", ")[0] for one in REQUIREMENTS}
    ours = [place for place in places if place.startswith(("docs/", "snapshot_plugin/"))]
    assert ours
    assert [place for place in ours if not (ROOT / place).exists()] == []


def test_all_eighteen_scenarios_of_the_specification_are_listed() -> None:
    scenarios = [one.id for one in REQUIREMENTS if one.id.startswith("GASOLINE-TEST-")]
    assert scenarios == [f"GASOLINE-TEST-{number:02}" for number in range(1, 19)]


EXAMPLE = section(
    "a page: a section", done("STORE-SAVE-REF", "a receipt"), to_do("STORE-SAVE-DELTA", "a cost", "not measured")
)


def test_promise_marked_done_without_a_test_is_detected() -> None:
    assert unproven(EXAMPLE, []) == ["STORE-SAVE-REF"]


def test_mark_naming_no_promise_is_detected() -> None:
    stray = Mark("STORE-SAVE-REFF", "test_example.py:1")
    assert unknown(EXAMPLE, [stray]) == [stray]


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.requirement("A", "B")\ndef test_it(): ...',
        '@pytest.mark.requirement("A")\n@pytest.mark.requirement("B")\nclass TestIt: ...',
        'pytestmark = [pytest.mark.anyio, pytest.mark.requirement("A", "B")]',
        'pytest.param(1, marks=pytest.mark.requirement("A", "B"))',
    ],
)
def test_marks_are_detected_wherever_pytest_sees_them(source: str) -> None:
    assert sorted(mark.requirement_id for mark in marks_in(source)) == ["A", "B"]


def test_a_mark_in_a_comment_or_a_string_proves_nothing() -> None:
    assert list(marks_in("# @pytest.mark.requirement('A')\n'@pytest.mark.requirement(\"A\")'")) == []


MARK = '@pytest.mark.requirement("A")\n'


@pytest.mark.parametrize(
    "body",
    ["assert f()", "with pytest.raises(E): f()", "checked()", "anyio.run(checked)", "assert_saved(place)"],
)
def test_assertion_is_detected_in_the_test_or_its_helpers(body: str) -> None:
    helpers = "from tests.faults.test_system_faults import assert_saved\ndef checked():\n    assert True\n"
    [test] = Module(f"{helpers}{MARK}def test_it():\n    {body}\n").tests()
    assert (test.ids, test.asserts, test.can_pass) == (("A",), True, True)


@pytest.mark.parametrize("body", ["f()", "unchecked()", "test_it()", "..."])
def test_test_without_assertion_is_detected(body: str) -> None:
    [test] = Module(f"def unchecked(): ...\n{MARK}def test_it():\n    {body}\n").tests()
    assert not test.asserts


@pytest.mark.parametrize(
    "source",
    [
        f"{MARK}@pytest.mark.skip\ndef test_it(): ...",
        f'{MARK}@pytest.mark.xfail(reason="r")\ndef test_it(): ...',
        f'pytestmark = pytest.mark.skip("r")\n{MARK}def test_it(): ...',
        f"{MARK}@pytest.mark.skip\nclass TestIt:\n    def test_it(self): ...",
        f"later = pytest.mark.xfail\n{MARK}@later\ndef test_it(): ...",
    ],
)
def test_test_that_cannot_pass_is_detected(source: str) -> None:
    [test] = Module(source).tests()
    assert not test.can_pass


def test_report_counts_promises_and_names_missing_ones() -> None:
    more = section(
        "a page", to_do("STORE-FORGET", "a policy", "no test"), differs("STORE-URL", "a scheme", "taste")
    )
    assert report((*EXAMPLE, *more)) == [
        "requirements: 1 done, 2 open",
        "STORE-SAVE-DELTA: not measured",
        "STORE-FORGET: no test",
        "kept in another way (docs/explanation/seeds.md): STORE-URL",
    ]


def test_report_names_every_promise_that_is_not_done() -> None:
    lines = report(REQUIREMENTS)
    assert [one.id for one in REQUIREMENTS if one.status != "done" and one.id not in "\n".join(lines)] == []
    assert max(len(line) for line in lines) <= 116


def test_every_promise_that_is_not_done_says_why() -> None:
    assert [one.id for one in REQUIREMENTS if (one.status == "done") == bool(one.why)] == []


def test_every_promise_kept_in_another_way_is_on_the_seeds_page() -> None:
    page = (ROOT / "docs/explanation/seeds.md").read_text("utf-8")
    assert [one.id for one in REQUIREMENTS if one.status == "differs" and f"`{one.id}`" not in page] == []
