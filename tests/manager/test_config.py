"""Settings: defaults, where they come from, who beats whom, and what a project may not decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin.errors import InvalidInput, InvalidPolicy
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.config_values import seconds
from snapshot_plugin.model.policy import RetentionPolicy

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
    return SnapshotConfig.load(
        environ=environ or {}, project_dir=tmp_path / "project", user_file=tmp_path / "user.toml", **code
    )


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
def test_code_beats_environment_beats_project_beats_user_beats_default(tmp_path: Path, write: Write) -> None:
    names = ["snapshot_interval", "event_debounce", "spool_flush_interval", "retry_first", "retry_max"]
    write("user.toml", "\n".join(f"{name} = 5" for name in names[:4]))
    write("project/.asnap.toml", "\n".join(f"{name} = 2" for name in names[:3]))
    environ = {f"ASNAP_{name.upper()}": "3" for name in names[:2]}
    config = _load(tmp_path, environ, snapshot_interval=4)
    assert [getattr(config, name) for name in names] == [4, 3, 2, 5, 60]
    layers = [config.origin(name).layer for name in names]
    assert layers == ["code", "environment", "project", "user", "default"]
    assert config.origin("event_debounce").where == "ASNAP_EVENT_DEBOUNCE"
    assert config.origin("spool_flush_interval").where == str(tmp_path / "project" / ".asnap.toml")
    assert str(config.origin("retry_first")) == f"user {tmp_path / 'user.toml'}"


def test_pyproject_table_is_found_from_a_subdirectory(tmp_path: Path, write: Write) -> None:
    write("pyproject.toml", "[tool.asnap]\nsnapshot_interval = '2m'\nmax_snapshots_per_session = 20")
    (tmp_path / "project").mkdir()
    config = _load(tmp_path)
    assert config.snapshot_interval == 120
    assert config.keep == RetentionPolicy(keep_last=20)
    assert config.origin("max_snapshots_per_session").layer == "project"


def test_the_search_for_a_project_file_ends_at_the_repository_root(tmp_path: Path, write: Write) -> None:
    write(".asnap.toml", "snapshot_interval = 7")
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    inside = SnapshotConfig.load(environ={}, project_dir=tmp_path / "repository", user_file=tmp_path / "none.toml")
    assert inside.origin("snapshot_interval").layer == "default"


def test_without_a_project_directory_no_project_file_is_read(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(".asnap.toml", "snapshot_interval = 7")
    monkeypatch.chdir(tmp_path)
    user = tmp_path / "none.toml"
    assert SnapshotConfig.load(environ={}, user_file=user).snapshot_interval == 7
    assert SnapshotConfig.load(environ={}, user_file=user, project_dir=None).snapshot_interval == 300


def test_project_cannot_move_the_store_or_disable_encryption(tmp_path: Path, write: Write) -> None:
    write("user.toml", "encryption = true\nstorage_path = '/kept'")
    write("project/.asnap.toml", "encryption = false\nstorage_path = '/stolen'")
    config = _load(tmp_path)
    assert (config.encryption, config.storage_path) == (True, "/kept")
    assert len(config.notices) == 2


@pytest.mark.parametrize(
    "line",
    [
        "snapshot_on_exit = false",
        "snapshot_on_signal = false",
        "max_snapshots_per_session = 1",
        "max_snapshots_per_session = 1000000",
        "retention = {keep_last = 1}",
        "exit_timeout = 0.001",
        "snapshot_timeout = 0.001",
        "snapshot_interval = '30d'",
        "snapshot_interval = 0.001",
        "event_debounce = 3600",
        "spool_flush_interval = 3600",
        "retry_max = 0.0001",
        "max_concurrent_saves = 100000",
        "enable_persistence = true",
        "encryption = true",
    ],
)
def test_project_cannot_lower_a_users_setting(tmp_path: Path, write: Write, line: str) -> None:
    write("project/.asnap.toml", line)
    config = _load(tmp_path)
    name = line.partition(" ")[0]
    assert getattr(config, name) == getattr(SnapshotConfig(), name)
    assert config.origin(name).layer == "default"
    assert name in config.notices[0]


def test_project_may_raise_a_users_setting(tmp_path: Path, write: Write) -> None:
    write("user.toml", "snapshot_on_exit = false\nsnapshot_interval = 600\nmax_snapshots_per_session = 3")
    write("project/.asnap.toml", "snapshot_on_exit = true\nsnapshot_interval = 60\nmax_snapshots_per_session = 30")
    config = _load(tmp_path)
    assert (config.snapshot_on_exit, config.snapshot_interval, config.max_snapshots_per_session) == (True, 60, 30)
    assert config.origin("snapshot_on_exit").layer == "project"
    assert config.notices == ()


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
    config = SnapshotConfig.load(environ={"XDG_CONFIG_HOME": str(tmp_path)}, project_dir=None)
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
