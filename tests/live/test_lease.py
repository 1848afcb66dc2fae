"""The lease: one owner, known by name, and gone with its process."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen

import pytest

from snapshot_plugin import SessionLocked, StoreUnavailable
from snapshot_plugin.live.lease import Lease, Owner, lease_of
from tests.manager.processes import PATIENCE, heard, python, tell
from tests.unknown_fields import with_unknown

SINCE = datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC)
ME = Owner.this_process(since=SINCE, control="/run/somewhere.sock")

HOLDER = """
    import pathlib, sys
    from datetime import UTC, datetime
    from snapshot_plugin.errors import SessionLocked
    from snapshot_plugin.live.lease import Lease, Owner
    directory = pathlib.Path(sys.argv[1])
    owner = Owner.this_process(since=datetime(2026, 1, 1, tzinfo=UTC))
    print("ready", flush=True)
    for order in sys.stdin:
        if order.strip() == "take":
            try:
                lease = Lease.acquire(directory, owner)
                print("mine", flush=True)
            except SessionLocked as error:
                print(error.code, flush=True)
        elif order.strip() == "release":
            lease.release()
            print("released", flush=True)
"""


def test_owner_is_known_only_while_it_holds_the_lease(tmp_path: Path) -> None:
    assert lease_of(tmp_path).owner is None
    assert list(tmp_path.iterdir()) == []
    lease = Lease.acquire(tmp_path, ME)
    assert lease_of(tmp_path).owner == ME == lease.owner
    assert lease_of(tmp_path).died is None
    lease.release()
    lease.release()
    assert lease_of(tmp_path).owner is None
    assert lease_of(tmp_path).died is None


@pytest.mark.requirement("MANAGER-LEASE-ONE")
def test_second_take_raises_an_error_that_names_the_owner_even_in_one_process(tmp_path: Path) -> None:
    lease = Lease.acquire(tmp_path, ME)
    with pytest.raises(SessionLocked) as refused:
        Lease.acquire(tmp_path, Owner(pid=1, host="other", since=SINCE))
    assert all(part in refused.value.message for part in (str(os.getpid()), ME.host, "2026-11-16T01:02:03"))
    assert "fork" in refused.value.hint
    assert refused.value.retryable
    assert lease_of(tmp_path).owner == ME
    lease.release()


def test_looking_at_the_owner_does_not_free_the_lease(tmp_path: Path) -> None:
    lease = Lease.acquire(tmp_path, ME)
    lease_of(tmp_path)
    with pytest.raises(SessionLocked):
        Lease.acquire(tmp_path, ME)
    lease.release()


def test_released_lease_is_free_although_a_process_that_is_being_started_still_has_its_descriptor(
    tmp_path: Path,
) -> None:
    lease = Lease.acquire(tmp_path, ME)
    inherited = os.dup(lease._fd)  # as between fork and exec
    try:
        lease.release()
        assert lease_of(tmp_path).owner is None
    finally:
        os.close(inherited)


def test_shorter_owner_name_overwrites_a_longer_stale_one_completely(tmp_path: Path) -> None:
    dead = with_unknown(ME, command=("x" * 3000,))
    (tmp_path / ".lease").write_text(dead.model_dump_json() + "\n")
    lease = Lease.acquire(tmp_path, ME)
    assert (lease.previous, lease_of(tmp_path).owner) == (dead, ME)
    assert (tmp_path / ".lease").read_text() == ME.model_dump_json() + "\n"
    lease.release()


def race(one: Popen[str], two: Popen[str]) -> tuple[Popen[str], Popen[str]]:
    """Let both try at once; the one that got the session, and the one that did not."""
    tell(one, "take")
    tell(two, "take")
    answers = [heard(one), heard(two)]
    assert sorted(answers) == ["locked", "mine"]
    return (one, two) if answers[0] == "mine" else (two, one)


@pytest.mark.requirement("MANAGER-LEASE-ONE", "ONERING-CARE-PROCESSES")
def test_exactly_one_of_two_racing_processes_wins(tmp_path: Path) -> None:
    with python(HOLDER, tmp_path) as one, python(HOLDER, tmp_path) as two:
        assert heard(one) == heard(two) == "ready"
        for _ in range(50):
            winner, _ = race(one, two)
            owner = lease_of(tmp_path).owner
            assert owner is not None
            assert owner.pid == winner.pid
            tell(winner, "release")
            assert heard(winner) == "released"


@pytest.mark.requirement("MANAGER-LEASE-KILL")
def test_session_can_be_taken_after_its_owner_was_killed(tmp_path: Path) -> None:
    with python(HOLDER, tmp_path) as one, python(HOLDER, tmp_path) as two:
        assert heard(one) == heard(two) == "ready"
        winner, loser = race(one, two)
        winner.send_signal(signal.SIGKILL)
        winner.wait(PATIENCE)
        assert lease_of(tmp_path).owner is None
        dead = lease_of(tmp_path).died
        assert dead is not None
        assert dead.pid == winner.pid
        tell(loser, "take")
        assert heard(loser) == "mine"


def test_next_owner_learns_of_a_killed_predecessor_but_not_of_a_stopped_one(tmp_path: Path) -> None:
    with python(HOLDER, tmp_path) as process:
        heard(process)
        tell(process, "take")
        assert heard(process) == "mine"
        process.kill()
        process.wait(PATIENCE)
    lease = Lease.acquire(tmp_path, ME)
    assert lease.previous is not None
    assert lease.previous.pid == process.pid
    lease.release()
    assert lease_of(tmp_path).died is None


def test_looking_at_a_lease_never_makes_a_taker_fail(tmp_path: Path) -> None:
    Lease.acquire(tmp_path, ME).release()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            lease_of(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(100):
            Lease.acquire(tmp_path, ME).release()
    finally:
        done.set()
        for looker in lookers:
            looker.join(PATIENCE)


def test_forked_child_does_not_hold_its_killed_parents_lease(tmp_path: Path) -> None:
    code = """
        import os, pathlib, signal, sys
        from datetime import UTC, datetime
        from snapshot_plugin.live.lease import Lease, Owner
        lease = Lease.acquire(pathlib.Path(sys.argv[1]), Owner.this_process(since=datetime.now(UTC)))
        if os.fork():
            signal.pause()
        lease.release()
        print("child", flush=True)
        sys.stdin.read()
    """
    with python(code, tmp_path) as process:
        assert heard(process) == "child"
        held_by = lease_of(tmp_path).owner
        assert held_by is not None
        assert held_by.pid == process.pid
        process.kill()
        process.wait(PATIENCE)
        assert lease_of(tmp_path).owner is None
        assert lease_of(tmp_path).died is not None


def test_a_held_lease_with_unreadable_content_still_counts(tmp_path: Path) -> None:
    lease = Lease.acquire(tmp_path, ME)
    (tmp_path / ".lease").write_bytes(b"\xff not an owner\n")
    owner = lease_of(tmp_path).owner
    assert owner is not None
    assert owner.pid == 0
    with pytest.raises(SessionLocked):
        Lease.acquire(tmp_path, ME)
    lease.release()


def test_releasing_the_lease_of_a_moved_session_leaves_the_new_lease_alone(tmp_path: Path) -> None:
    place = tmp_path / "session"
    place.mkdir()
    lease = Lease.acquire(place, ME)
    place.rename(tmp_path / "trash")
    place.mkdir()
    newer = Lease.acquire(place, ME)
    lease.release()
    assert lease_of(place).owner == ME
    assert lease_of(tmp_path / "trash").died is None
    newer.release()


def test_files_are_private_and_a_missing_directory_is_an_unavailable_store(tmp_path: Path) -> None:
    Lease.acquire(tmp_path, ME).release()
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    with pytest.raises(StoreUnavailable):
        Lease.acquire(tmp_path / "nowhere", ME)


# --- what it says about its process ------------------------------------------------------------------------------


def test_lease_of_an_older_release_is_read_and_its_command_line_not_rewritten(
    tmp_path: Path,
) -> None:
    """Version 0.1.0 stored the whole command line, in encrypted stores too."""
    line = '{"pid":4000000,"host":"here","since":"2026-11-01T00:00:00Z","command":["python","--key","secret"]}\n'
    (tmp_path / ".lease").write_text(line)
    died = lease_of(tmp_path).died
    assert died is not None
    assert died.pid == 4_000_000
    lease = Lease.acquire(tmp_path, Owner.this_process(since=SINCE))
    assert "secret" not in (tmp_path / ".lease").read_text()
    lease.hand_back()
    assert "secret" not in (tmp_path / ".lease").read_text()
    assert lease_of(tmp_path).died is not None


def test_lease_stores_only_a_short_process_name(tmp_path: Path) -> None:
    owner = Owner.this_process(since=SINCE, control="/run/x.sock")
    lease = Lease.acquire(tmp_path, owner)
    stored = json.loads((tmp_path / ".lease").read_text())
    assert set(stored) == {"pid", "host", "since", "program", "control"}
    assert len(stored["program"]) <= 40
    assert "/" not in stored["program"]
    lease.release()


def test_epoch_grows_after_clean_stops_and_crashes(tmp_path: Path) -> None:
    epochs = []
    for end in ("release", "hand_back", "_leave_to_parent", "release"):
        lease = Lease.acquire(tmp_path, Owner.this_process(since=SINCE))
        epochs.append(lease.epoch)
        getattr(lease, end)()
    assert epochs == [1, 2, 3, 4]


def test_lease_with_a_moved_directory_is_not_in_place(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    lease = Lease.acquire(tmp_path / "s", Owner.this_process(since=SINCE))
    assert lease.is_in_place
    (tmp_path / "s").rename(tmp_path / "trash")
    assert not lease.is_in_place
    (tmp_path / "s").mkdir()
    other = Lease.acquire(tmp_path / "s", Owner.this_process(since=SINCE))
    assert not lease.is_in_place
    lease.release()
    assert lease_of(tmp_path / "s").owner == other.owner
    other.release()
    assert not other.is_in_place
