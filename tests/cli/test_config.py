from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.commands import run
from snapshot_plugin.cli.commands.setup import Settings
from snapshot_plugin.cli.output import Output
from tests.cli.conftest import Asnap
from tests.cli.examples import valid


@pytest.mark.requirement("GASOLINE-P-PLACE-GLOBAL")
def test_each_setting_shows_its_origin(asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config" / "asnap").mkdir(parents=True)
    (home / "config" / "asnap" / "config.toml").write_text(
        "snapshot_interval = '1m'\nmax_snapshots_per_session = 3\n"
    )
    monkeypatch.setenv("ASNAP_EXIT_TIMEOUT", "7s")

    ran = asnap("config", "show", "--origin", "--store", home / "s", "--json")

    origin = {each["name"]: (each["value"], each["layer"]) for each in valid(Settings, ran.json)["settings"]}
    assert origin["storage_path"] == (str(home / "s"), "flag")
    assert origin["exit_timeout"] == (7.0, "environment")
    assert origin["max_snapshots_per_session"] == (3, "user")
    assert origin["snapshot_interval"] == (60.0, "user")
    assert origin["enable_persistence"] == (True, "default")


def test_invalid_setting_names_the_file_it_is_in(asnap: Asnap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASNAP_SNAPSHOT_INTERVAL", "never")

    ran = asnap("config", "show", "--json")

    assert ran.code == 2
    assert "ASNAP_SNAPSHOT_INTERVAL" in ran.error["message"]


def test_long_running_programs_and_commands_use_the_same_store(home: Path) -> None:
    (home / "config" / "asnap").mkdir(parents=True)
    (home / "config" / "asnap" / "config.toml").write_text(f"storage_path = '{home / 'mine'}'\n")

    for given, place in ((None, home / "mine"), (str(home / "other"), home / "other")):
        for store in (run._opened(given)[1], Call(out=Output(), place=given).opened()):
            assert isinstance(store, FilesystemStore)
            assert store.path == place


def test_a_warning_reads_as_a_sentence_and_with_verbose_names_its_module(asnap: Asnap, home: Path) -> None:
    (home / "config" / "asnap").mkdir(parents=True)
    (home / "config" / "asnap" / "config.toml").write_text("typo = 1\n")

    assert asnap("list").err.startswith("warning: /")
    assert asnap("list", "-v").err.startswith("snapshot_plugin.manager.config: /")
