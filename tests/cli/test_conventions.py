"""What holds for every command, whatever it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest

from snapshot_plugin.cli import COMMANDS, every_command
from snapshot_plugin.cli.command import EXITS, AsnapCommand
from snapshot_plugin.cli.commands.setup import ERROR_SCHEMA, TOPICS, schemas
from snapshot_plugin.errors import EXIT_CODES
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session

EVERY = every_command()


@pytest.mark.parametrize("name", EVERY)
def test_every_command_has_a_purpose_three_examples_and_exit_codes(asnap: Asnap, name: str) -> None:
    command = EVERY[name]

    assert isinstance(command, AsnapCommand)
    assert len(command.examples) >= 3
    assert command.help
    ran = asnap(*name.split(), "--help")
    assert ran.code == 0
    assert ran.out.index("Examples:") < ran.out.index("Usage:") < ran.out.index("Exit codes:")
    assert max(len(line) for line in ran.out.splitlines()) <= 100


@pytest.mark.parametrize("name", EVERY)
def test_examples_are_command_lines_that_parse(name: str) -> None:
    command = EVERY[name]
    assert isinstance(command, AsnapCommand)
    options = {text for param in command.params for text in (*param.opts, *param.secondary_opts)}

    for line, _ in command.examples:
        ours = line.split("asnap ", 1)[-1].split(" -- ")[0].split("|")[0].split("&&")[0]
        used = {word.split("=")[0] for word in ours.split() if word.startswith("--")}
        if ours.startswith(name):
            assert used - options <= {"--help"}, line


def test_every_command_is_listed_under_its_heading(asnap: Asnap) -> None:
    told = asnap("--help").out
    headings = dict.fromkeys(heading for heading, _ in COMMANDS.values())
    places = [told.index(f"{heading}:\n") for heading in headings]
    parts = [told[start:end] for start, end in zip(places, [*places[1:], None], strict=True)]
    under = dict(zip(headings, parts, strict=True))

    assert all(f"\n  {name} " in under[heading] for name, (heading, _) in COMMANDS.items())


def test_schemas_are_valid_json_schemas() -> None:
    known = schemas()

    assert {"list", "check", "paths", "error"} <= known.keys()
    for schema in known.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_error_document_conforms_to_its_schema(asnap: Asnap) -> None:
    for words in (("show", "nope"), ("check", "nope"), ("lst",), ("check", "--nope")):
        ran = asnap(*words, "--json")
        jsonschema.validate(ran.error, ERROR_SCHEMA)
        assert ran.out == ""


@pytest.mark.parametrize("words", [[], ["keys"], ["secrets"]])
def test_command_group_alone_shows_its_help(asnap: Asnap, words: list[str]) -> None:
    ran = asnap(*words)

    assert ran.code == 2
    assert ran.err.strip() == asnap(*words, "--help").out.strip()


@pytest.mark.parametrize(
    ("words", "following"),
    [
        (["list", "--since", "someday"], "asnap list --help"),
        (["list", "--since"], "asnap list --help"),
        (["keys", "add", "--label"], "asnap keys add --help"),
        (["serve"], "asnap serve --help"),
    ],
)
def test_usage_error_points_to_the_commands_help(asnap: Asnap, words: list[str], following: str) -> None:
    ran = asnap(*words, "--json") if words[-1].startswith("some") else asnap(*words)

    assert ran.code == 2
    assert following in ran.err


def test_suggested_next_command_names_the_same_store(asnap: Asnap, home: Path) -> None:
    place = home / "another store"
    saved(place, session("01aaaa", title="one"), session("01bbbb", title="one"))

    assert asnap("show", "nope", "--store", place, "--json").error["next"] == f"asnap list --all --store '{place}'"
    assert asnap("show", "one", "--store", place, "--json").error["next"] == f"asnap list --all --store '{place}'"
    saved(place, session("01cccc"))
    ran = asnap("resume", "01cccc", "--store", place, "--json")
    assert ran.error["next"] == f"asnap resume 01cccc --with 'opencode acp' --store '{place}'"


@pytest.mark.parametrize(
    ("words", "following"),
    [
        (["rename", "01aaaa", "new"], "asnap undo"),
        (["tag", "01aaaa", "new"], "asnap undo"),
        (["forget", "01aaaa", "--yes"], "asnap undo"),
        (["fork", "01aaaa"], "asnap undo"),
        (["doctor"], "asnap resume"),
    ],
)
def test_suggested_remedy_names_the_same_store(asnap: Asnap, home: Path, words: list[str], following: str) -> None:
    place = home / "another store"
    saved(place, session("01aaaa"))

    ran = asnap(*words, "--store", place)

    assert ran.code == 0
    assert f"{following} --store '{place}'" in ran.err + ran.out


def test_every_exit_code_of_an_error_is_explained() -> None:
    assert set(EXIT_CODES.values()) <= EXITS.keys()
    assert all(f"{code:>3}" in TOPICS["exit-codes"] for code in EXITS)


def test_a_typo_gets_a_suggestion(asnap: Asnap) -> None:
    ran = asnap("serach")

    assert ran.code == 2
    assert "'search'" in ran.err


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("demo", "run", "mcp")])
def test_missing_store_exits_10_if_the_command_needs_one(asnap: Asnap, name: str, place: Path) -> None:
    arguments = [
        "x" for param in EVERY[name].params if isinstance(param, click.Argument) and param.required
        for _ in range(max(1, param.nargs))
    ]  # fmt: skip
    if name in ("completion", "import"):
        return  # arguments of their own kind
    ran = asnap(*name.split(), *arguments, "--no-input")

    assert ran.code in (0, 2, 7, 10), ran.err
    assert not place.exists() or name == "serve", "reading commands make nothing"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_asnap(asnap: Asnap, shell: str) -> None:
    assert f"_ASNAP_COMPLETE={shell}_complete" in asnap("completion", shell).out


def test_completion_completes_commands() -> None:
    environment = {**os.environ, "_ASNAP_COMPLETE": "bash_complete", "COMP_WORDS": "asnap sea", "COMP_CWORD": "1"}

    done = subprocess.run(
        [sys.executable, "-m", "snapshot_plugin"], env=environment, capture_output=True, timeout=60, check=False
    )

    assert b"plain,search" in done.stdout


def test_closed_output_pipe_is_not_an_error() -> None:
    line = f"{sys.executable} -m snapshot_plugin schema | head -c 10; code=${{PIPESTATUS[0]}}; echo; echo $code"

    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=True)

    assert done.stdout.splitlines()[-1] == b"0"
    assert done.stderr == b""


@pytest.mark.parametrize("topic", TOPICS)
def test_help_topics(asnap: Asnap, topic: str) -> None:
    assert asnap("help", topic).out.strip() == TOPICS[topic].strip()


@pytest.mark.parametrize("name", ["list", "keys", "import", "run"])
def test_help_for_a_command_is_its_help(asnap: Asnap, name: str) -> None:
    assert asnap("help", name).out == asnap(name, "--help").out


def test_help_for_an_unknown_topic_lists_the_topics(asnap: Asnap) -> None:
    ran = asnap("help", "nope")

    assert ran.code == 2
    assert "refs" in ran.err


def test_internal_error_is_reported_as_a_bug(asnap: Asnap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_plugin.cli.commands.setup.schemas", lambda: 1 / 0)

    ran = asnap("schema", "--json")

    assert ran.code == 1
    assert "ZeroDivisionError" in ran.error["message"]
