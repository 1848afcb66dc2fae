"""The live contract as a pytest suite: what `snapshot_plugin.live.ports` promises of a `LivePlace` and its `Hold`.

::

    class TestMyPlace(LiveContract):
        def open(self, place):
            return MyPlace(place)

        def code(self, place):                     # for another process: defines `live_place`
            return f"from my_package import MyPlace; live_place = MyPlace({str(place)!r})"

`hold_sync`, `delete` and `undelete` are optional; without them, the tests that need them are skipped. If a lease
ends some time after its owner died, override `outlive` to wait for that.
"""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from snapshot_plugin.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    SessionLocked,
    SnapshotCorrupted,
    StoreUnavailable,
)
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.ports import Hold, LivePlace, Record

__all__ = ["LiveContract"]

PATIENCE = 60
_ROUNDS = 200
_SINCE = datetime(2026, 11, 16, 12, tzinfo=UTC)

_OWNER = """
    import sys
    from datetime import UTC, datetime
    from snapshot_plugin.live.lease import Owner
    hold = live_place.take("s", Owner.this_process(since=datetime.now(UTC)))
    print("taken", hold.epoch, flush=True)
    for line in sys.stdin:
        print(hold.append([{"text": line}, {"text": "and more"}]), flush=True)
"""


class LiveContract:
    """Everything that a `LivePlace` promises. Subclass it, define `open`, and run pytest."""

    _launch: ClassVar[Any] = subprocess.Popen

    def open(self, place: Any) -> LivePlace:
        """A new object over *place*."""
        raise NotImplementedError

    def code(self, place: Any) -> str:
        """Python code for another process that opens *place* as ``live_place``."""
        raise NotImplementedError

    @contextmanager
    def hold_sync(self, place: Any, begun: threading.Event, go_on: threading.Event) -> Iterator[None]:
        """A context manager in which a flush sets *begun* and then waits for *go_on*. Optional."""
        _ = place, begun, go_on
        pytest.skip("this suite does not say how to hold a sync (hold_sync)")
        yield

    def delete(self, place: Any, session_id: str) -> None:
        """Delete the live session, as another process would. Optional."""
        _ = place, session_id
        pytest.skip("this suite does not say how to delete a live session (delete)")

    def undelete(self, place: Any) -> None:
        """Bring the session that `delete` deleted back, as another process would. Optional."""
        _ = place
        pytest.skip("this suite does not say how to bring a deleted session back (undelete)")

    def outlive(self, place: Any, session_id: str) -> None:
        """Return once the lease of a killed owner has expired. Optional: the lease may end immediately."""
        _ = place, session_id

    @pytest.fixture
    def place(self, tmp_path: Path) -> Any:
        """The place of one test's sessions; override it to return what `open` needs."""
        return tmp_path / "place"

    # The lease -------------------------------------------------------------------------------------------

    def test_a_session_is_taken_once_and_names_its_owner(self, place: Any) -> None:
        live = self.open(place)
        assert live.owner("s") is None
        hold = live.take("s", _us())
        assert live.owner("s") == self.open(place).owner("s") == _us()
        assert dict(live.owners()) == {"s": _us()}
        with pytest.raises(SessionLocked, match=str(os.getpid())):
            self.open(place).take("s", _us())
        other = live.take("t", _us())
        assert set(live.owners()) == {"s", "t"}
        other.release()
        hold.release()

    def test_a_released_session_is_free_and_not_abandoned(self, place: Any) -> None:
        live = self.open(place)
        hold = live.take("s", _us())
        hold.release()
        hold.release()
        assert (live.owner("s"), live.is_abandoned("s"), list(live.abandoned())) == (None, False, [])
        again = live.take("s", _us())
        assert again.previous is None
        again.release()

    def test_the_epoch_grows_each_time_a_session_is_taken(self, place: Any) -> None:
        epochs = []
        for _ in range(12):
            hold = self.open(place).take("s", _us())
            epochs.append(hold.epoch)
            hold.release()
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 0

    def test_a_session_that_was_handed_back_is_as_before(self, place: Any) -> None:
        self._die_with(place, [])
        live = self.open(place)
        first = live.take("s", _us())
        dead = first.previous
        first.hand_back()
        assert dead is not None
        assert live.is_abandoned("s")
        second = live.take("s", _us())
        assert second.previous == dead
        second.release()

    def test_a_session_never_taken_is_not_created_by_a_look(self, place: Any) -> None:
        live = self.open(place)
        assert (live.owner("s"), live.is_abandoned("s"), dict(live.owners()), list(live.abandoned())) == (
            None,
            False,
            {},
            [],
        )

    # Records ---------------------------------------------------------------------------------------------

    def test_records_are_numbered_in_order_and_there_after_a_release(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        assert (hold.last, list(hold.unsaved(0))) == (0, [])
        assert hold.append([{"n": 1}]) == 1
        assert hold.append([{"n": 2}, {"n": 3}, {"text": "é\u0000\ud83d\ude00"}]) == 4 == hold.last
        hold.release()
        assert self.open(place).is_abandoned("s")
        assert self._left(place) == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3}), (4, {"text": "é\0😀"})]

    def test_others_see_the_records_of_a_live_session_as_they_come(self, place: Any) -> None:
        hold, onlooker, marks = self.open(place).take("s", _us()), self.open(place), set()
        assert list(onlooker.records("s")) == []
        for n in (1, 2):
            hold.append([{"n": n}])
            hold.flush()
            marks.add(onlooker.spool_mark("s"))
        assert [tuple(record) for record in onlooker.records("s")] == [(1, {"n": 1}), (2, {"n": 2})]
        assert (len(marks), onlooker.owner("s")) == (2, _us())
        hold.release()

    def test_several_records_are_appended_whole_or_not_at_all(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        for bad in (float("nan"), {1, 2}, b"bytes"):
            with pytest.raises(InvalidInput):
                hold.append([{"n": 1}, {"n": bad}])
        assert hold.last == 0
        assert hold.append([{"n": 1}]) == 1
        hold.release()

    def test_only_records_after_the_given_number_are_unsaved(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.append([{"n": n} for n in (1, 2, 3)])
        hold.release()
        again = self.open(place).take("s", _us())
        assert [record.n for record in again.unsaved(1)] == [2, 3]
        assert list(again.unsaved(3)) == []
        again.release()

    def test_truncated_records_are_gone_and_numbers_continue(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.append([{"n": n} for n in range(1, 6)])
        hold.truncate(3)
        assert hold.append([{"n": 6}]) == 6
        hold.release()
        assert [n for n, _ in self._left(place)] == [4, 5, 6]
        again = self.open(place).take("s", _us())
        again.truncate(6)
        again.truncate(2)
        assert again.append([{"n": 7}]) == 7
        again.truncate(41)
        assert again.append([{"n": 42}]) == 42
        again.release()
        assert self._left(place) == [(42, {"n": 42})]

    def test_a_gap_before_the_first_record_is_told(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.truncate(5)
        hold.append([{"n": 6}])
        hold.release()
        again = self.open(place).take("s", _us())
        with pytest.raises(SnapshotCorrupted):
            again.unsaved(3)
        assert [record.n for record in again.unsaved(5)] == [6]
        again.release()

    def test_records_set_aside_are_kept_and_numbers_continue(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.append([{"n": 1}, {"n": 2}])
        hold.release()
        again = self.open(place).take("s", _us())
        assert again.set_aside(1)
        assert list(again.unsaved(2)) == []
        assert again.append([{"n": 3}]) == 3
        again.release()
        assert self._left(place) == [(3, {"n": 3})]

    def test_a_released_hold_takes_no_records(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.release()
        with pytest.raises(StoreUnavailable):
            hold.append([{"n": 1}])

    # Threads ---------------------------------------------------------------------------------------------

    def test_truncate_beside_append_and_flush_loses_nothing(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        text, saved, finished = "x" * 3000, [0], threading.Event()

        def append() -> None:
            for _ in range(_ROUNDS):
                hold.append([{"text": text}, {"text": text}])
            finished.set()

        def flush() -> None:
            while not finished.is_set():
                hold.flush()

        def truncate() -> None:
            while not finished.is_set():
                saved.append(max(saved[-1], hold.last - 3))
                hold.truncate(saved[-1])

        _together(append, flush, truncate)
        hold.flush()
        hold.release()
        assert [n for n, _ in self._left(place, after=saved[-1])] == list(range(saved[-1] + 1, 2 * _ROUNDS + 1))

    def test_append_does_not_wait_for_the_sync_of_another_thread(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.append([{"n": 1}])
        begun, go_on = threading.Event(), threading.Event()
        with self.hold_sync(place, begun, go_on), ThreadPoolExecutor() as threads:
            flush = threads.submit(hold.flush)
            assert begun.wait(PATIENCE)
            assert threads.submit(hold.append, [{"n": 2}]).result(PATIENCE) == 2
            again = threads.submit(hold.flush)
            assert not flush.done()
            assert not again.done()  # must not return before the sync that covers its record has ended
            go_on.set()
            flush.result(PATIENCE)
            again.result(PATIENCE)
        hold.release()

    def test_a_truncate_waits_for_a_flush_and_an_append_for_neither(self, place: Any) -> None:
        hold = self.open(place).take("s", _us())
        hold.append([{"n": n, "text": "x" * 100_000} for n in (1, 2)])
        begun, go_on = threading.Event(), threading.Event()
        with self.hold_sync(place, begun, go_on), ThreadPoolExecutor() as threads:
            flush = threads.submit(hold.flush)
            assert begun.wait(PATIENCE)
            truncate = threads.submit(hold.truncate, 1)
            assert threads.submit(hold.append, [{"n": 3}]).result(PATIENCE) == 3
            go_on.set()
            flush.result(PATIENCE)
            truncate.result(PATIENCE)
        hold.release()
        assert [n for n, _ in self._left(place, after=1)] == [2, 3]

    # Other processes -------------------------------------------------------------------------------------

    def test_a_session_of_a_living_process_is_locked_and_not_abandoned(self, place: Any) -> None:
        live = self.open(place)
        with self._process(place) as process:
            assert _heard(process).startswith("taken")
            owner = live.owner("s")
            assert owner is not None
            assert owner.pid == process.pid
            with pytest.raises(SessionLocked, match=str(process.pid)):
                live.take("s", _us())
            assert (live.is_abandoned("s"), list(live.abandoned())) == (False, [])

    def test_a_killed_process_leaves_every_record_that_was_acknowledged(self, place: Any) -> None:
        said = [f"line {number}\n" for number in range(20)]
        pid, epoch = self._die_with(place, said)
        live = self.open(place)
        assert live.owner("s") is None
        assert (live.is_abandoned("s"), list(live.abandoned())) == (True, ["s"])
        hold = live.take("s", _us())
        assert hold.epoch > epoch
        assert hold.previous is not None
        assert hold.previous.pid == pid
        records = [record.data["text"] for record in hold.unsaved(0)]
        assert records[: 2 * len(said)] == [text for line in said for text in (line, "and more")]
        hold.release()

    def test_a_lease_says_no_more_about_its_process_than_needed(self, place: Any) -> None:
        with self._process(place, "--api-key", "secret-argument") as process:
            assert _heard(process).startswith("taken")
            owner = self.open(place).owner("s")
        assert owner is not None
        assert "secret-argument" not in owner.model_dump_json()

    # Deleted while live ----------------------------------------------------------------------------------

    def test_the_holder_of_a_deleted_session_is_fenced(self, place: Any) -> None:
        live = self.open(place)
        hold = live.take("s", _us())
        hold.append([{"n": 1}])
        hold.flush()
        assert not hold.is_fenced
        self.delete(place, "s")
        assert hold.is_fenced
        with pytest.raises(Fenced):
            hold.flush()
        again = live.take("s", _us())
        assert list(again.unsaved(0)) == []
        hold.release()
        assert not again.is_fenced
        assert live.owner("s") == _us()
        again.release()

    def test_a_deleted_session_stays_in_the_trash_while_a_live_one_has_its_id(self, place: Any) -> None:
        self.delete(place, "s")
        live = self.open(place)
        hold = live.take("s", _us())
        hold.append([{"n": 1}])
        with pytest.raises(SessionLocked):
            self.undelete(place)
        assert hold.append([{"n": 2}]) == 2
        hold.flush()
        assert not hold.is_fenced
        hold.release()
        with pytest.raises(Conflict):  # its words are in no snapshot yet
            self.undelete(place)
        again = live.take("s", _us())
        assert [record.n for record in again.unsaved(0)] == [1, 2]
        again.truncate(2)
        again.release()
        self.undelete(place)
        assert (live.owner("s"), live.is_abandoned("s")) == (None, False)

    # Inside ----------------------------------------------------------------------------------------------

    def _left(self, place: Any, *, after: int | None = None) -> list[tuple[int, dict[str, Any]]]:
        hold: Hold = self.open(place).take("s", _us())
        try:
            records = hold.unsaved(after) if after is not None else _all_of(hold)
            return [(record.n, record.data) for record in records]
        finally:
            hold.release()

    def _die_with(self, place: Any, lines: list[str]) -> tuple[int, int]:
        """Kill a process that has taken the session and appended a record per line; its pid and epoch."""
        with self._process(place) as process:
            taken = _heard(process)
            for line in lines:
                assert process.stdin is not None
                process.stdin.write(line)
                process.stdin.flush()
                assert _heard(process).isdigit()
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
        self.outlive(place, "s")
        return process.pid, int(taken.split()[1])

    @contextmanager
    def _process(self, place: Any, *args: str) -> Iterator[subprocess.Popen[str]]:
        code = f"{self.code(place)}\n{textwrap.dedent(_OWNER)}"
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with self._launch(
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def _all_of(hold: Hold) -> list[Record]:
    """All records in the spool, regardless of earlier truncation."""
    for after in range(hold.last + 1):
        try:
            return list(hold.unsaved(after))
        except SnapshotCorrupted:
            continue
    return []


def _us() -> Owner:
    return Owner.this_process(since=_SINCE)


def _heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _together(*works: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(works)) as threads:
        for running in [threads.submit(work) for work in works]:
            running.result(PATIENCE)
