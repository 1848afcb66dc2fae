"""Where secrets come from: each source gives its secret, or says why not, and shows it nowhere else."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from snapshot_plugin import KeyMissing, MissingExtra, SnapshotError
from snapshot_plugin.codec.sources import (
    CommandKey,
    EnvironmentKey,
    KeyFile,
    KeyringKey,
    KeySource,
    Passphrase,
    source_from_environment,
)

SECRET = "horse-battery-staple"


def complaint(source: KeySource, expected: type[SnapshotError] = KeyMissing) -> str:
    """Everything a user could get to see when the source fails."""
    with pytest.raises(expected) as caught:
        source.secret()
    assert caught.value.hint
    return repr(source) + "".join(traceback.format_exception(caught.value))


def key_file(path: Path, content: bytes, mode: int = 0o600) -> KeyFile:
    path.write_bytes(content)
    path.chmod(mode)
    return KeyFile(path)


def printing(text: str) -> list[str]:
    return [sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", text]


class MemoryKeyring(KeyringBackend):
    """A keyring that lives as long as a test."""

    priority = 1
    locked = False

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked(SECRET)
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password


@pytest.fixture
def desktop() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


@pytest.mark.requirement("STORE-KEY-SOURCES")
def test_every_source_strips_the_line_end_of_its_secret(tmp_path: Path, desktop: MemoryKeyring) -> None:
    desktop.set_password("asnap", "me", SECRET)
    sources: dict[str, KeySource] = {
        "passphrase": Passphrase(SECRET),
        "key-file": key_file(tmp_path / "key", SECRET.encode() + b"\r\n"),
        "environment": EnvironmentKey("MY_KEY", {"MY_KEY": SECRET}),
        "command": CommandKey(printing(SECRET + "\n")),
        "keyring": KeyringKey("asnap", "me"),
    }
    for kind, source in sources.items():
        assert source.secret() == SECRET.encode()
        assert source.kind == kind
        assert SECRET not in repr(source)


def test_spaces_are_part_of_a_secret(tmp_path: Path) -> None:
    assert Passphrase(" a b ").secret() == b" a b "
    assert key_file(tmp_path / "key", b" a b \n").secret() == b" a b "


def test_a_key_file_may_hold_any_bytes(tmp_path: Path) -> None:
    assert key_file(tmp_path / "key", b"\xff\x00\xfe").secret() == b"\xff\x00\xfe"


def test_environment_value_that_is_not_utf8_is_returned_as_bytes() -> None:
    assert EnvironmentKey("K", {"K": os.fsdecode(b"\xff\xfe")}).secret() == b"\xff\xfe"
    assert Passphrase(os.fsdecode(b"\xff\xfe")).secret() == b"\xff\xfe"


def test_the_environment_is_read_when_the_secret_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvironmentKey("ASNAP_TEST_KEY")
    complaint(source)
    monkeypatch.setenv("ASNAP_TEST_KEY", SECRET)
    assert source.secret() == SECRET.encode()


@pytest.mark.requirement("STORE-KEY-CLOSED")
@pytest.mark.parametrize("empty", ["", "\n", "\r\n\n"])
def test_empty_secret_is_refused(empty: str, tmp_path: Path, desktop: MemoryKeyring) -> None:
    desktop.set_password("asnap", "me", empty)
    complaint(Passphrase(empty))
    complaint(EnvironmentKey("K", {"K": empty}))
    complaint(key_file(tmp_path / "key", empty.encode()))
    complaint(CommandKey(printing(empty)))
    complaint(KeyringKey("asnap", "me"))


# Key files


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620, 0o777])
def test_key_file_readable_by_others_is_refused_with_a_remedy(mode: int, tmp_path: Path) -> None:
    source = key_file(tmp_path / "key", SECRET.encode(), mode)
    text = complaint(source)
    assert SECRET not in text
    assert "chmod 600" in text


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_private_key_file_is_accepted(mode: int, tmp_path: Path) -> None:
    assert key_file(tmp_path / "key", SECRET.encode(), mode).secret() == SECRET.encode()


def test_symlinked_key_file_needs_a_private_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "key")
    key_file(tmp_path / "key", SECRET.encode(), 0o644)
    assert "chmod 600" in complaint(KeyFile(tmp_path / "link"))
    (tmp_path / "key").chmod(0o600)
    assert KeyFile(tmp_path / "link").secret() == SECRET.encode()


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    assert "absent.key" in complaint(KeyFile(tmp_path / "absent.key"))


def test_unreadable_key_file_is_a_missing_key(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    complaint(KeyFile(tmp_path / "loop"))
    key_file(tmp_path / "key", SECRET.encode())
    complaint(KeyFile(tmp_path / "key" / "below"))


def test_directory_is_not_a_key_file(tmp_path: Path) -> None:
    complaint(KeyFile(tmp_path))


def test_pipe_without_a_writer_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    complaint(KeyFile(tmp_path / "pipe"))


def test_pipe_is_not_a_key_file_even_if_it_holds_a_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    fd = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        os.write(fd, SECRET.encode())
        complaint(KeyFile(tmp_path / "pipe"))
    finally:
        os.close(fd)


def test_oversized_key_file_is_refused(tmp_path: Path) -> None:
    assert key_file(tmp_path / "key", b"x" * 65536).secret() == b"x" * 65536
    complaint(key_file(tmp_path / "key", b"x" * 65537))


def test_an_empty_path_is_a_missing_key() -> None:
    complaint(KeyFile(""))


# Commands


def test_failing_command_gives_no_key_even_if_it_printed_one() -> None:
    source = CommandKey([sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(3)", SECRET])
    assert SECRET not in complaint(source)


def test_hanging_command_is_ended() -> None:
    waiting = "import sys, threading; print(sys.argv[1], flush=True); threading.Event().wait(90)"
    source = CommandKey([sys.executable, "-c", waiting, SECRET], timeout=0.5)
    text = complaint(source)
    assert SECRET not in text
    assert "0.5 seconds" in text


@pytest.fixture
def protocol_on_standard_input() -> Iterator[None]:
    reader, writer = os.pipe()
    os.write(writer, b"a message for us")
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    yield
    os.dup2(before, 0)
    os.close(before)
    os.close(reader)


@pytest.mark.usefixtures("protocol_on_standard_input")
def test_command_does_not_read_our_standard_input() -> None:
    reading = [sys.executable, "-c", "import os; print(len(os.read(0, 100)), 'bytes')"]
    assert CommandKey(reading).secret() == b"0 bytes"


def test_a_command_runs_without_a_shell() -> None:
    assert CommandKey(printing("$HOME; echo `id`")).secret() == b"$HOME; echo `id`"


@pytest.mark.parametrize("argv", [(), ("",), ("./no-such-program", SECRET), ("/", SECRET), ("nul\0", SECRET)])
def test_a_command_that_cannot_start_is_a_missing_key(argv: tuple[str, ...]) -> None:
    assert SECRET not in complaint(CommandKey(argv))


def test_repr_of_a_command_hides_its_arguments() -> None:
    assert SECRET not in repr(CommandKey(("echo", SECRET)))


# The keyring


def test_missing_keyring_entry_is_a_missing_key(desktop: MemoryKeyring) -> None:
    assert "asnap/me" in complaint(KeyringKey("asnap", "me"))


def test_a_locked_keyring_is_a_missing_key(desktop: MemoryKeyring) -> None:
    desktop.locked = True
    assert SECRET not in complaint(KeyringKey("asnap", "me"))


def test_missing_keyring_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "snapshot-plugin[keyring]" in complaint(KeyringKey("asnap", "me"), MissingExtra)


# The environment as a whole


def test_environment_without_key_variables_gives_no_source() -> None:
    assert source_from_environment({"HOME": "/home/me"}) is None


def test_each_variable_names_its_source() -> None:
    assert source_from_environment({"ASNAP_KEY": "k"}) == EnvironmentKey("ASNAP_KEY")
    assert source_from_environment({"ASNAP_KEY_FILE": "/run/key"}) == KeyFile("/run/key")
    assert source_from_environment({"ASNAP_PASSPHRASE": "a b"}) == Passphrase("a b")
    command = source_from_environment({"ASNAP_KEY_COMMAND": "pass show 'my agent'"})
    assert command == CommandKey(("pass", "show", "my agent"))


def test_given_environment_is_used_instead_of_the_process_environment() -> None:
    source = source_from_environment({"ASNAP_KEY": SECRET})
    assert source is not None
    assert source.secret() == SECRET.encode()


def test_the_first_variable_wins() -> None:
    names = ("ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_KEY_COMMAND", "ASNAP_PASSPHRASE")
    kinds = ("environment", "key-file", "command", "passphrase")
    for first, kind in enumerate(kinds):
        source = source_from_environment(dict.fromkeys(names[first:], "x"))
        assert source is not None
        assert source.kind == kind


@pytest.mark.requirement("STORE-KEY-CLOSED")
@pytest.mark.parametrize("name", ["ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_KEY_COMMAND", "ASNAP_PASSPHRASE"])
def test_empty_variable_never_disables_encryption(name: str) -> None:
    source = source_from_environment({name: ""})
    assert source is not None
    complaint(source)


def test_a_command_with_an_open_quote_is_a_missing_key() -> None:
    with pytest.raises(KeyMissing) as caught:
        source_from_environment({"ASNAP_KEY_COMMAND": f"echo '{SECRET}"})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
