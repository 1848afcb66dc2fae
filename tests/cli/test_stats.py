from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from snapshot_plugin import SessionSnapshot
from snapshot_plugin.cli.charts import Chart, bar, plot, sparkline, svg
from snapshot_plugin.model import AgentInfo, Metrics, SessionConfig
from snapshot_plugin.operations.statistics import Statistics
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.cli.terminal import Terminal

MONDAY = datetime(2026, 3, 2, 9, 7, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def session(name: str, *texts: str, at: datetime = MONDAY, tokens: int = 0, cost: float | None = None,
            agent: str | None = None, cwd: str | None = None, **fields: Any) -> SessionSnapshot:  # fmt: skip
    made = make_snapshot(*texts, session_id=name, created_at=at, updated_at=at, **fields)
    return made.evolve(
        metrics=Metrics(turns=len(texts) // 2, total_tokens=tokens, cost=cost),
        agent=AgentInfo(name=agent) if agent else None,
        config=SessionConfig(cwd=cwd),
        messages=tuple(message.evolve(timestamp=at) for message in made.messages),
    )


@pytest.fixture
def week(place: Path) -> None:
    """Two sessions that share a topic: one over two days, one on the day after."""
    first = session("a", "fix the login form", "done", tokens=100, cost=0.5, agent="gemini", cwd="/p/shop")
    later = session(
        "a", "fix the login form", "done", "and the login page", "done",
        at=MONDAY + timedelta(days=1, hours=5), tokens=250, cost=0.75, agent="gemini", cwd="/p/shop",
    )  # fmt: skip
    other = session(
        "b",
        "login tests with database",
        "ok",
        at=MONDAY + timedelta(days=3),
        tokens=1000,
        agent="codex",
        cwd="/p/api",
    )
    saved(place, first, later, other)


@pytest.mark.usefixtures("week")
@pytest.mark.requirement("TERMINAL-USE-TOKENS", "TERMINAL-STATS-TOKENS")
def test_tokens_and_cost_count_on_the_day_they_were_spent(asnap: Asnap) -> None:
    found = asnap("stats", "--json").json

    assert [(day["key"], day["tokens"], day["cost"]) for day in found["groups"]] == [
        ("2026-03-02", 100, 0.5),
        ("2026-03-03", 150, 0.25),
        ("2026-03-05", 1000, 0.0),
    ]
    assert [day["tokens"] for day in found["daily"]] == [100, 150, 0, 1000]
    assert (found["total"]["tokens"], found["total"]["sessions"], found["total"]["cost"]) == (1250, 2, 0.75)
    jsonschema.validate(found, Statistics.json_schema())


@pytest.mark.usefixtures("week")
@pytest.mark.requirement("TERMINAL-STATS-TOKENS")
@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("week", [("2026-W10", 1250)]),
        ("agent", [("codex", 1000), ("gemini", 250)]),
        ("project", [("/p/api", 1000), ("/p/shop", 250)]),
    ],
)
def test_usage_is_grouped_by_week_agent_and_project(asnap: Asnap, by: str, groups: list[tuple[str, int]]) -> None:
    found = asnap("stats", "--by", by, "--json").json
    assert [(group["key"], group["tokens"]) for group in found["groups"]] == groups


@pytest.mark.usefixtures("week")
@pytest.mark.requirement("TERMINAL-STATS-HOURS")
def test_the_most_active_times_are_shown(asnap: Asnap) -> None:
    found = asnap("stats", "--json").json
    assert {hour: n for hour, n in enumerate(found["hours"]) if n} == {9: 2, 14: 4}
    assert found["weekdays"] == [0, 4, 0, 2, 0, 0, 0]
    assert "most at 14 h, 9 h" in asnap("stats").err


@pytest.mark.usefixtures("week")
@pytest.mark.requirement("TERMINAL-STATS-TOPICS")
def test_common_topics_are_shown(asnap: Asnap) -> None:
    assert asnap("stats", "--json").json["topics"] == [{"term": "login", "sessions": 2}]
    assert "login (2)" in asnap("stats").err


@pytest.mark.usefixtures("week")
def test_since_excludes_earlier_usage(asnap: Asnap) -> None:
    found = asnap("stats", "--since", "2026-03-04", "--json").json
    assert (found["total"]["tokens"], found["total"]["sessions"]) == (1000, 1)


@pytest.mark.usefixtures("week")
def test_sizes_are_compared_with_plain_json(asnap: Asnap, place: Path) -> None:
    storage = asnap("stats", "--json").json["storage"]
    assert storage["store_bytes"] == sum(f.stat().st_size for f in place.rglob("*.snap.gz"))
    assert 0 < storage["plain_bytes"] < storage["copies_bytes"]


def test_secrets_are_never_topics(asnap: Asnap, place: Path) -> None:
    saved(place, session("a", "use AKIAIOSFODNN7EXAMPLZ", "ok", "again AKIAIOSFODNN7EXAMPLZ"))
    terms = [topic["term"] for topic in asnap("stats", "--json").json["topics"]]
    assert not [term for term in terms if "akia" in term]


@pytest.mark.usefixtures("week")
def test_quick_reads_no_conversation(asnap: Asnap, home: Path) -> None:
    found = asnap("stats", "--quick", "--json").json
    assert (found["total"]["tokens"], found["hours"], found["topics"]) == (1250, [], [])
    assert not list(home.glob("cache/asnap/search-*"))
    jsonschema.validate(found, Statistics.json_schema())


def test_unreadable_session_counts_by_its_summary(asnap: Asnap, place: Path) -> None:
    saved(place, session("a", "hello", "hi", tokens=100), session("b", "x", "y", tokens=50))
    (file,) = (place / "sessions" / "b").glob("*.snap.gz")
    file.write_bytes(b"nonsense")
    done = asnap("stats", "--json", "-q")
    assert (done.json["unreadable"], done.json["total"]["tokens"]) == (["b"], 100)
    assert "b" in done.err


def test_working_memory_is_not_counted_as_a_session(asnap: Asnap, place: Path) -> None:
    saved(place, session("a", "hello", tokens=5), session("a+memory", "entries", tokens=7))
    found = asnap("stats", "--json").json
    assert (found["total"]["sessions"], found["total"]["tokens"]) == (1, 5)


def test_empty_store_has_no_statistics(asnap: Asnap, place: Path) -> None:
    saved(place)
    found = asnap("stats", "--json").json
    assert (found["groups"], found["total"]["sessions"], found["daily"]) == ([], 0, [])
    assert asnap("stats").code == 0
    with Terminal("stats") as terminal:
        assert terminal.end() == 0
        assert b"\r\n\r\n" not in terminal.received


def test_exit_codes_without_a_store_or_its_key(asnap: Asnap, place: Path) -> None:
    assert asnap("stats").code == 10
    saved(place, session("a", "hello"), key="secret")
    assert asnap("stats").code == 7
    assert asnap("stats", "--since", "whenever").code == 2


@pytest.mark.usefixtures("week")
def test_piped_output_has_the_groups_with_exact_numbers(asnap: Asnap) -> None:
    assert [line.split("\t") for line in asnap("stats", "--by", "agent", "-q").out.splitlines()] == [
        ["codex", "1", "1", "2", "1000", "0"],
        ["gemini", "1", "2", "4", "250", "0.75"],
    ]


@pytest.mark.usefixtures("week")
def test_terminal_shows_bars_and_sparklines() -> None:
    with Terminal("stats", columns=60, env={"TZ": "UTC"}) as terminal:
        terminal.wait_for("2026-03-05")
        terminal.wait_for("█")
        assert "total" in terminal.text
        assert all(len(line) <= 60 for line in terminal.lines)


def test_plot_has_an_axis_of_time_and_one_of_values() -> None:
    values = [0.0] * 30
    values[0], values[29] = 50, 100
    *rows, axis, names = plot(values, ("2026-03-01", "2026-03-30"), "1.2M", 2)
    assert rows == [f"1.2M │{' ' * 29}█", f"     │█{' ' * 28}█"]
    assert axis == f"   0 └{'─' * 30}"
    assert names == "      2026-03-01          2026-03-30"
    assert list(plot([0, 0], ("a", "b"), "0"))[-1] == "   a to b"


# The picture -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("week")
def test_chart_is_a_self_contained_file(asnap: Asnap, home: Path) -> None:
    assert asnap("stats", "--svg", home / "x.svg", "-q").code == 0
    drawing = (home / "x.svg").read_text("utf-8")

    rects = ET.fromstring(drawing).findall("{http://www.w3.org/2000/svg}rect")
    assert len(rects) == 4 + 4 + 24  # the day between, on which nothing happened, too
    values = [each.text for each in ET.fromstring(drawing).findall(".//*[@class='y']")]
    assert values[:2] == ["0", "1.0k"]
    assert not [word for word in ("<script", "href", "url(", "@import", "<image") if word in drawing]


@pytest.mark.usefixtures("week")
def test_chart_can_be_written_to_stdout(asnap: Asnap) -> None:
    assert ET.fromstring(asnap("stats", "--svg", "-").out).tag.endswith("svg")


@pytest.mark.usefixtures("week")
def test_unwritable_chart_is_an_error(asnap: Asnap, home: Path) -> None:
    done = asnap("stats", "--svg", home / "no" / "x.svg", "--json")
    assert (done.code, done.error["code"]) == (1, "store_unavailable")


def test_agent_name_cannot_control_chart_or_terminal(asnap: Asnap, place: Path, home: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\"'&\x00\u202e"
    saved(place, session("a", "hello", tokens=5, agent=evil.replace("\x00", "")))
    out = asnap("stats", "--by", "agent", "--svg", home / "x.svg", "--color", "never")

    drawing = (home / "x.svg").read_text("utf-8")
    ET.fromstring(drawing)
    assert "<script" not in drawing
    assert not {"\x1b", "\u202e"} & set(out.out + out.err + drawing)


def test_highest_value_has_the_highest_block_and_zero_has_none() -> None:
    assert sparkline([0, 1, 50, 100]) == " ▁▅█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "


def test_bar_fits_its_columns_and_small_values_stay_visible() -> None:
    assert (bar(100, 100, 4), bar(50, 100, 4), bar(0.001, 100, 4), bar(0, 100, 4)) == ("████", "██", "▏", "")
    assert bar(1, 0, 4) == ""


def test_empty_chart_is_a_valid_file() -> None:
    assert ET.fromstring(svg("nothing", [Chart("empty", [], [], [])])).tag.endswith("svg")
