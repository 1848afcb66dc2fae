"""Settings: defaults, where they come from, who beats whom, and what a project may not decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import InvalidInput, InvalidPolicy, RetentionPolicy, SnapshotConfig
from snapshot_plugin.manager.config_values import seconds

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def _load(tmp_path: Path, environ: dict[str, str] | None = None, **code: Any) -> SnapshotConfig:
    (tmp_path / ".git").mkdir(exist_ok=True)
    return SnapshotConfig.load(environ=environ or {}, user_file=tmp_path / "user.toml", **code)


@pytest.mark.requirement(
    "ORBIT-CONFIG-ENABLE", "ORBIT-CONFIG-INTERVAL", "ORBIT-CONFIG-EXIT", "ORBIT-CONFIG-MAX", "ONERING-OPTION-OFF"
)
def test_defaults_match_the_documentation() -> None:
    config = SnapshotConfig()
    assert config.enable_persistence is True
    assert config.snapshot_interval == 300
    assert config.snapshot_on_exit is True
    assert config.max_snapshots_per_session == 10
    assert config.keep == RetentionPolicy(keep_last=10)
    assert config.encryption is False
    assert config.origin("snapshot_interval").layer == "default"


@pytest.mark.requirement("MANAGER-CONFIG-LAYERS", "MANAGER-CONFIG-ORIGIN")
def test_code_beats_environment_beats_user_beats_default(tmp_path: Path, write: Write) -> None:
    names = ["snapshot_interval", "event_debounce", "retry_first", "retry_max"]
    write("user.toml", "\n".join(f"{name} = 5" for name in names[:3]))
    environ = {f"ASNAP_{name.upper()}": "3" for name in names[:2]}
    config = _load(tmp_path, environ, snapshot_interval=4)
    assert [getattr(config, name) for name in names] == [4, 3, 5, 60]
    assert [config.origin(name).layer for name in names] == ["code", "environment", "user", "default"]
    assert config.origin("event_debounce").where == "ASNAP_EVENT_DEBOUNCE"
    assert str(config.origin("retry_first")) == f"user {tmp_path / 'user.toml'}"


@pytest.mark.parametrize(("file", "head"), [(".asnap.toml", ""), ("pyproject.toml", "[tool.asnap]\n")])
def test_file_of_a_project_changes_no_setting(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, file: str, head: str
) -> None:
    write(file, f"{head}snapshot_interval = 7\nstorage_path = '/stolen'")
    monkeypatch.chdir(tmp_path)
    config = _load(tmp_path)
    assert (config.origin("snapshot_interval").layer, config.notices) == ("default", ())


@pytest.mark.requirement("MANAGER-CONFIG-UNKNOWN")
def test_unknown_setting_in_a_file_is_reported_and_ignored(tmp_path: Path, write: Write) -> None:
    write("user.toml", "snapshot_intervall = 5")
    config = _load(tmp_path)
    assert config.snapshot_interval == 300
    assert "snapshot_interval'" in config.notices[0]


@pytest.mark.requirement("ORBIT-CONFIG-PATH")
def test_store_is_named_by_asnap_store_or_is_in_the_data_directory(tmp_path: Path) -> None:
    assert _load(tmp_path, {"ASNAP_STORE": "/srv/sessions"}).storage_path == "/srv/sessions"
    assert _load(tmp_path, {"XDG_DATA_HOME": "/data"}).storage_path == "/data/asnap/store"
    assert _load(tmp_path, {"ASNAP_STORE": "memory:///x"}).storage_path == "memory:///x"
    home = SnapshotConfig(storage_path="~/sessions").storage_path
    assert home == str(Path("~/sessions").expanduser())


def test_user_file_is_in_the_configuration_directory(tmp_path: Path, write: Write) -> None:
    write("asnap/config.toml", "snapshot_interval = '1h'")
    config = SnapshotConfig.load(environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert config.snapshot_interval == 3600


@pytest.mark.parametrize(
    ("given", "meant"),
    [(5, 5.0), ("90", 90.0), ("250ms", 0.25), (" 5m ", 300.0), ("1.5h", 5400.0), (timedelta(days=1), 86400.0)],
)
def test_durations_are_parsed(given: object, meant: float) -> None:
    assert seconds(given) == meant


@pytest.mark.requirement("MANAGER-CONFIG-REFUSED", "MANAGER-FAULT-INTERVAL")
@pytest.mark.parametrize(
    "given", [0, -1, "0s", "-5", "soon", "", None, True, float("nan"), float("inf"), timedelta(0), [5]]
)
def test_invalid_interval_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="snapshot_interval"):
        SnapshotConfig(snapshot_interval=given)


@pytest.mark.requirement("MANAGER-CONFIG-REFUSED")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_persistence", "maybe"),
        ("max_snapshots_per_session", "0"),
        ("max_snapshots_per_session", "2.5"),
        ("storage_path", ""),
        ("retention", "keep all"),
        ("retention", "[1]"),
        ("retention", '{"keep_lots": 1}'),
    ],
)
def test_bad_variable_is_named_in_the_error(tmp_path: Path, name: str, value: str) -> None:
    variable = "ASNAP_STORE" if name == "storage_path" else f"ASNAP_{name.upper()}"
    with pytest.raises(InvalidInput, match=variable):
        _load(tmp_path, {variable: value})


def test_variables_are_parsed_by_type(tmp_path: Path) -> None:
    environ = {
        "ASNAP_ENABLE_PERSISTENCE": "Yes",
        "ASNAP_SNAPSHOT_ON_EXIT": "0",
        "ASNAP_MAX_SNAPSHOTS_PER_SESSION": "3",
        "ASNAP_RETENTION": '{"keep_last": 4}',
    }
    config = _load(tmp_path, environ)
    assert (config.enable_persistence, config.snapshot_on_exit) == (True, False)
    assert (config.max_snapshots_per_session, config.keep) == (3, RetentionPolicy(keep_last=4))


def test_a_policy_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput):
        SnapshotConfig(retention={})
    with pytest.raises(InvalidPolicy):
        RetentionPolicy()


@pytest.mark.parametrize("content", [b"snapshot_interval = ", b"\xff\xfe", b"snapshot_interval = 0"])
def test_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "user.toml").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"user\.toml"):
        _load(tmp_path)


def test_unknown_setting_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        _load(tmp_path, interval=5)
    with pytest.raises(InvalidInput):
        SnapshotConfig().origin("interval")


def test_settings_made_in_code_have_an_origin_and_are_immutable() -> None:
    config = SnapshotConfig(snapshot_interval=10)
    assert config.origin("snapshot_interval").layer == "code"
    assert config.origin("exit_timeout").layer == "default"
    with pytest.raises(FrozenInstanceError):
        config.snapshot_interval = 5  # type: ignore[misc]
