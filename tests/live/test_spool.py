"""The spool: what was acknowledged is there, exactly, or the damage is said."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import (
    InvalidInput,
    InvalidSnapshotVersion,
    KeyMissing,
    SnapshotCorrupted,
    StoreUnavailable,
    WrongKey,
)
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.live import spool as spool_module
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.spool import (
    RawRecord,
    Spool,
    framed,
    header,
    read_spool,
    scan,
    seed_of,
    unsaved,
)
from snapshot_plugin.store.filenames import spool_has_records
from tests.manager.processes import PATIENCE, heard, output_of, python
from tests.tries import tries

SID = "session-1"
KEYSET = Keyset.new()


def keys_of(session_id: str, keyset: Keyset = KEYSET) -> SessionKeys:
    return SessionKeys(keyset, store_id="01store", session_id=session_id)


@pytest.fixture(params=["plain", "sealed"])
def keys(request: pytest.FixtureRequest) -> SessionKeys | None:
    return keys_of(SID) if request.param == "sealed" else None


def filled(directory: Path, count: int, keys: SessionKeys | None = None) -> list[Record]:
    spool = Spool.open(directory, session_id=SID, keys=keys)
    records = [Record(spool.append({"i": i}), {"i": i}) for i in range(count)]
    spool.close()
    return records


def numbers(directory: Path, keys: SessionKeys | None = None) -> list[int]:
    contents = read_spool(directory, session_id=SID, keys=keys)
    assert not contents.torn
    assert contents.damage is None
    return [record.n for record in contents.records]


# --- appending and reading ---------------------------------------------------------------------------------------


def test_records_round_trip(tmp_path: Path, keys: SessionKeys | None) -> None:
    values: list[dict[str, Any]] = [{}, {"t": "é\ud83d\u2028"}, {"deep": [[{"x": 1.5}], None, True]}, {"": 2**60}]
    spool = Spool.open(tmp_path, session_id=SID, keys=keys)
    assert [spool.append(value) for value in values] == [1, 2, 3, 4]
    contents = read_spool(tmp_path, session_id=SID, keys=keys)
    assert contents.records == tuple(Record(n, value) for n, value in enumerate(values, 1))
    assert (contents.torn, contents.damage, contents.base) == (False, None, 0)
    spool.close()


def test_missing_spool_reads_as_empty(tmp_path: Path) -> None:
    found = read_spool(tmp_path, session_id=SID)
    assert (found.records, found.torn, found.damage, found.base) == ((), False, None, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("MANAGER-SPOOL-NUMBERS")
def test_numbers_continue_after_reopening_and_after_a_full_truncate(
    tmp_path: Path, keys: SessionKeys | None
) -> None:
    filled(tmp_path, 3, keys)
    spool = Spool.open(tmp_path, session_id=SID, keys=keys)
    assert (spool.last, spool.append({})) == (3, 4)
    spool.truncate(4)
    spool.close()
    again = Spool.open(tmp_path, session_id=SID, keys=keys)
    assert (again.last, again.append({})) == (4, 5)
    again.close()
    assert numbers(tmp_path, keys) == [5]


@pytest.mark.requirement("MANAGER-SPOOL-NUMBERS")
def test_number_claimed_by_the_head_is_not_reused_when_the_file_is_gone(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, session_id=SID)
    spool.truncate(57)
    assert (spool.last, spool.append({})) == (57, 58)
    spool.close()
    assert numbers(tmp_path) == [58]


def test_records_contained_in_the_head_are_dropped_after_opening(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    spool = Spool.open(tmp_path, session_id=SID)
    spool.truncate(3)
    spool.close()
    assert numbers(tmp_path) == [4, 5]


@pytest.mark.parametrize("record", [{"x": math.nan}, {"x": object()}, {"x": {1, 2}}, ["no dict"], None])
def test_record_that_is_not_json_is_refused_and_changes_nothing(tmp_path: Path, record: Any) -> None:
    spool = Spool.open(tmp_path, session_id=SID)
    spool.append({"i": 1})
    with pytest.raises(InvalidInput):
        spool.append(record)
    assert spool.append({"i": 2}) == 2
    spool.close()
    assert numbers(tmp_path) == [1, 2]


def test_spool_file_is_private(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    assert (tmp_path / "live").stat().st_mode & 0o777 == 0o600


def test_closed_spool_refuses_records_and_closes_twice(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, session_id=SID)
    spool.close()
    spool.close()
    for call in (lambda: spool.append({}), lambda: spool.truncate(1)):
        with pytest.raises(StoreUnavailable):
            call()


def test_a_missing_directory_is_an_unavailable_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        Spool.open(tmp_path / "nowhere", session_id=SID)


# --- truncating --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("upto", "left"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (3, []), (9, [])])
def test_truncate_drops_records_up_to_the_given_number(
    tmp_path: Path, keys: SessionKeys | None, upto: int, left: list[int]
) -> None:
    filled(tmp_path, 3, keys)
    spool = Spool.open(tmp_path, session_id=SID, keys=keys)
    spool.truncate(upto)
    assert numbers(tmp_path, keys) == left
    n = spool.append({})
    assert n == max(3, upto) + 1
    spool.close()
    assert numbers(tmp_path, keys) == [*left, n]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live", "live.1"]


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_truncate_frees_disk_space_also_if_records_come_during_every_save(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, session_id=SID)
    empty = size(tmp_path)
    for _ in range(20):
        for _ in range(3):
            spool.append({"text": "x" * 10_000})
        spool.truncate(spool.last - 1)
        assert size(tmp_path) < empty + 2 * 3 * 11_000
    spool.truncate(spool.last)
    assert size(tmp_path) == empty
    spool.close()


@tries(60)
@given(steps=st.lists(st.one_of(st.just("append"), st.just("reopen"), st.integers(0, 12)), max_size=25))
def test_any_sequence_of_calls_matches_a_list_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | int]
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    spool = Spool.open(directory, session_id=SID)
    model: list[int] = []
    last = 0
    for step in steps:
        if step == "append":
            last += 1
            assert spool.append({"n": last}) == last
            model.append(last)
        elif step == "reopen":
            spool.close()
            spool = Spool.open(directory, session_id=SID)
        else:
            spool.truncate(int(step))
            last = max(last, int(step))
            model = [n for n in model if n > int(step)]
        assert spool.last == last
        found = [(r.n, r.data) for r in read_spool(directory, session_id=SID).records]
        assert found[len(found) - len(model) :] == [(n, {"n": n}) for n in model]
        assert [n for n, _ in found] == list(range(last - len(found) + 1, last + 1))  # no gap before them either
    spool.close()


def test_concurrent_append_flush_and_truncate_lose_nothing(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, session_id=SID)
    halfway = threading.Event()

    def append() -> None:
        for i in range(1, 401):
            spool.append({"i": i})
            if i == 200:
                halfway.set()

    writer = threading.Thread(target=append)
    writer.start()
    assert halfway.wait(PATIENCE)
    for upto in range(1, 101):
        spool.truncate(upto)
        spool.flush()
    writer.join(PATIENCE)
    spool.close()
    contents = read_spool(tmp_path, session_id=SID)
    first = contents.records[0].n
    assert first <= 101
    assert [(r.n, r.data["i"]) for r in contents.records] == [(n, n) for n in range(first, 401)]


# --- kill -9 -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MANAGER-SPOOL-KILL", "ORBIT-USE-LITTLE-LOST")
def test_every_acknowledged_record_survives_a_kill(tmp_path: Path) -> None:
    code = """
        import itertools, sys, pathlib
        from snapshot_plugin.live.spool import Spool
        spool = Spool.open(pathlib.Path(sys.argv[1]), session_id="session-1")
        for i in itertools.count(1):
            print(spool.append({"i": i, "text": "x" * (i % 5000)}), flush=True)
    """
    with python(code, tmp_path) as process:
        acknowledged = [int(heard(process)) for _ in range(300)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in iter(lambda: heard(process), "")]
        assert process.wait(PATIENCE) == -signal.SIGKILL
    contents = read_spool(tmp_path, session_id=SID)
    assert contents.damage is None
    assert [r.n for r in contents.records] == [r.data["i"] for r in contents.records]
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    assert len(acknowledged) <= len(contents.records) <= len(acknowledged) + 1


CRASHING_TRUNCATE = """
    import itertools, json, os, pathlib, shutil, signal, sys
    from snapshot_plugin.live.spool import Spool
    from snapshot_plugin.live.spool import read_spool

    root, upto, before = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

    def die_before_call(k):
        calls = itertools.count()
        for name in ("open", "pread", "pwrite", "write", "rename", "ftruncate", "close", "unlink"):
            def replaced(*args, real=getattr(os, name), **kwargs):
                if next(calls) == k:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)
            setattr(os, name, replaced)

    def state(directory):
        found = read_spool(directory, session_id="session-1")
        return [r.n for r in found.records], found.torn, found.damage

    for k in itertools.count():
        directory = root / str(k)
        directory.mkdir()
        child = os.fork()
        if child == 0:
            spool = Spool.open(directory, session_id="session-1")
            for i in range(1, 6):
                spool.append({"i": i})
                if i == before + 1:
                    spool.truncate(before)  # the last two or three go to the other file
            die_before_call(k)
            spool.truncate(upto)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        left, torn, damage = state(directory)
        again = Spool.open(directory, session_id="session-1")
        new = again.append({})
        again.close()
        print(json.dumps([killed, left, torn, damage, new, state(directory)[0]]))
        if not killed:
            break
"""


@pytest.mark.requirement("MANAGER-SPOOL-TRUNCATE")
@pytest.mark.parametrize(("upto", "new"), [(5, []), (3, [4, 5]), (9, [])], ids=["all", "some", "beyond"])
@pytest.mark.parametrize("before", [0, 2], ids=["one file", "both files"])
def test_kill_at_any_step_of_truncate_leaves_all_or_none_of_the_records(
    tmp_path: Path, upto: int, new: list[int], before: int
) -> None:
    if before and new:
        upto, new = 4, [5]
    old = [1, 2, 3, 4, 5][before:]
    runs = [json.loads(line) for line in output_of(CRASHING_TRUNCATE, tmp_path, upto, before)]
    assert len(runs) > 2
    assert runs[-1][:2] == [False, new]
    assert runs[0][:2] == [True, old]
    for _killed, left, torn, damage, n, after in runs:
        assert left in (old, new)
        assert (torn, damage) == (False, None)
        assert n == (6 if left else max(5, upto) + 1)
        assert after == [*left, n]


# --- damage ------------------------------------------------------------------------------------------------------


def write(directory: Path, data: bytes) -> None:
    (directory / "live").write_bytes(data)


@pytest.mark.requirement("MANAGER-SPOOL-TORN")
def test_file_cut_at_any_length_gives_the_records_before_the_cut(tmp_path: Path, keys: SessionKeys | None) -> None:
    records = filled(tmp_path, 3, keys)
    whole = (tmp_path / "live").read_bytes()
    begin = header(SID, base=0, sealed=keys is not None)
    boundaries = {len(begin), *(record.end for record in scan(whole, SID).records)}
    for length in range(len(whole) + 1):
        write(tmp_path, whole[:length])
        found = read_spool(tmp_path, session_id=SID, keys=keys)
        assert list(found.records) == records[: len(found.records)]
        assert len(found.records) == max(0, sum(end <= length for end in boundaries) - 1)
        assert found.torn == (length not in {0, *boundaries})
        assert found.damage is None


@pytest.mark.requirement("MANAGER-SPOOL-DAMAGE")
def test_flipped_bit_is_reported_and_never_gives_a_wrong_record(tmp_path: Path, keys: SessionKeys | None) -> None:
    records = filled(tmp_path, 2, keys)
    whole = (tmp_path / "live").read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        write(tmp_path, bytes(damaged))
        try:
            found = read_spool(tmp_path, session_id=SID, keys=keys)
        except InvalidSnapshotVersion:
            assert bit // 8 == 7
            continue
        assert list(found.records) == records[: len(found.records)]
        assert len(found.records) < len(records)
        assert found.damage is not None


@pytest.mark.requirement("MANAGER-SPOOL-DAMAGE", "MANAGER-SPOOL-ASIDE")
def test_opening_a_damaged_spool_quarantines_it_and_continues_after_the_intact_records(
    tmp_path: Path, keys: SessionKeys | None
) -> None:
    filled(tmp_path, 3, keys)
    live = tmp_path / "live"
    whole = live.read_bytes()
    for at in (0, 20, len(whole) // 2, len(whole) - 1):
        write(tmp_path, whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        damaged, before = live.read_bytes(), read_spool(tmp_path, session_id=SID, keys=keys).records
        spool = Spool.open(tmp_path, session_id=SID, keys=keys)
        assert spool.set_aside is not None
        assert Path(spool.set_aside).read_bytes() == damaged
        new = spool.append({"new": True})
        spool.close()
        assert new == len(before) + 1
        assert numbers(tmp_path, keys) == list(range(1, new + 1))
    assert len(list(tmp_path.glob("live.aside-*"))) == 4


@pytest.mark.requirement("MANAGER-SPOOL-TORN")
def test_opening_a_torn_spool_cuts_the_unfinished_record(tmp_path: Path, keys: SessionKeys | None) -> None:
    filled(tmp_path, 3, keys)
    whole = (tmp_path / "live").read_bytes()
    for length in range(0, len(whole), 5):
        write(tmp_path, whole[:length])
        before = len(read_spool(tmp_path, session_id=SID, keys=keys).records)
        spool = Spool.open(tmp_path, session_id=SID, keys=keys)
        assert spool.append({}) == before + 1
        assert spool.set_aside is None
        spool.close()
        assert numbers(tmp_path, keys) == list(range(1, before + 2))


@pytest.mark.parametrize("count", [0, 2])
def test_trailing_zeros_from_a_power_cut_are_an_unfinished_record(tmp_path: Path, count: int) -> None:
    records = filled(tmp_path, count)
    with (tmp_path / "live").open("ab") as file:
        file.write(bytes(4096))
    found = read_spool(tmp_path, session_id=SID)
    assert (list(found.records), found.torn, found.damage) == (records, True, None)


def test_spool_of_another_session_is_refused(tmp_path: Path) -> None:
    Spool.open(tmp_path, session_id="other").close()
    assert read_spool(tmp_path, session_id=SID).damage is not None


@pytest.mark.requirement("MANAGER-SPOOL-BOUND")
def test_a_record_from_another_sessions_plain_spool_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with (tmp_path / "live").open("ab") as file:
        file.write(framed(2, b"{}", seed_of("other")))
    found = read_spool(tmp_path, session_id=SID)
    assert ([r.n for r in found.records], found.damage is None) == ([1], False)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_record_out_of_order_is_damage(tmp_path: Path, n: int) -> None:
    filled(tmp_path, 1)
    with (tmp_path / "live").open("ab") as file:
        file.write(framed(n, b"{}", seed_of(SID)))
    assert read_spool(tmp_path, session_id=SID).damage is not None


def test_a_complete_record_that_is_not_a_json_object_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with (tmp_path / "live").open("ab") as file:
        file.write(framed(2, b"[1]", seed_of(SID)))
    assert read_spool(tmp_path, session_id=SID).damage is not None


@pytest.mark.requirement("MANAGER-SPOOL-VERSION")
def test_a_spool_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    newer = b"ASNAPSP3" + (tmp_path / "live").read_bytes()[8:]
    write(tmp_path, newer)
    with pytest.raises(InvalidSnapshotVersion):
        read_spool(tmp_path, session_id=SID)
    with pytest.raises(InvalidSnapshotVersion):
        Spool.open(tmp_path, session_id=SID)
    assert (tmp_path / "live").read_bytes() == newer


def test_quarantined_spool_is_kept_whole_and_a_new_one_begins(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    whole = (tmp_path / "live").read_bytes()
    spool = Spool.open(tmp_path, session_id=SID)
    assert Path(spool.keep_aside(1)).read_bytes() == whole
    assert read_spool(tmp_path, session_id=SID).records == ()
    assert spool.append({"n": 3}) == 3
    assert spool.keep_aside(9) == str(tmp_path / "live.aside-2")
    assert spool.append({"n": 10}) == 10
    spool.close()


# --- sealed ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MANAGER-SPOOL-SEALED")
def test_a_sealed_spool_shows_no_plaintext(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, session_id=SID, keys=keys_of(SID))
    spool.append({"message": {"role": "user", "content": "the secret plan"}})
    spool.append({"message": {"role": "user", "content": "the second plan"}})
    spool.truncate(1)
    spool.close()
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert not any(word in data for word in (b"secret", b"second", b"plan", b"message", b"role", b"user"))


def forged(directory: Path, session_id: str, *bodies: tuple[int, bytes]) -> None:
    """A spool with right sums all over, as somebody without the key can make one."""
    records = b"".join(framed(n, body, seed_of(session_id)) for n, body in bodies)
    write(directory, header(session_id, base=0, sealed=True) + records)


def sealed_bodies(directory: Path) -> tuple[RawRecord, ...]:
    filled(directory, 2, keys_of(SID))
    return scan((directory / "live").read_bytes(), SID).records


@pytest.mark.requirement("MANAGER-SPOOL-BOUND")
def test_sealed_record_opens_only_in_its_session_at_its_number(tmp_path: Path) -> None:
    first, second = sealed_bodies(tmp_path)
    forged(tmp_path, "other", (1, first.body))
    moved = read_spool(tmp_path, session_id="other", keys=keys_of("other"))
    forged(tmp_path, SID, (1, second.body), (2, first.body))
    swapped = read_spool(tmp_path, session_id=SID, keys=keys_of(SID))
    forged(tmp_path, SID, (1, first.body), (2, first.body))
    repeated = read_spool(tmp_path, session_id=SID, keys=keys_of(SID))
    assert [len(found.records) for found in (moved, swapped, repeated)] == [0, 0, 1]
    assert all(found.damage for found in (moved, swapped, repeated))


@pytest.mark.parametrize("body", [b"", b"\x00", b'{"role":"user"}', b"\xff" * 300])
def test_unsealed_body_is_never_a_record(tmp_path: Path, body: bytes) -> None:
    forged(tmp_path, SID, (1, body))
    with contextlib.suppress(WrongKey):  # where it names a key that is not there
        assert read_spool(tmp_path, session_id=SID, keys=keys_of(SID)).damage is not None


def test_opening_a_spool_with_a_forged_record_quarantines_it_and_continues_before_it(tmp_path: Path) -> None:
    first, second = sealed_bodies(tmp_path)
    forged(tmp_path, SID, (1, first.body), (2, first.body), (3, second.body))
    spool = Spool.open(tmp_path, session_id=SID, keys=keys_of(SID))
    assert spool.set_aside is not None
    assert spool.append({"new": True}) == 2
    spool.close()
    assert numbers(tmp_path, keys_of(SID)) == [1, 2]


@pytest.mark.requirement("MANAGER-SPOOL-SEALED", "MANAGER-SPOOL-ASIDE")
def test_encrypted_store_quarantines_a_plain_spool(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    found = read_spool(tmp_path, session_id=SID, keys=keys_of(SID))
    assert (found.records, found.damage is None) == ((), False)
    spool = Spool.open(tmp_path, session_id=SID, keys=keys_of(SID))
    assert spool.append({}) == 1
    assert spool.set_aside is not None
    spool.close()


def test_sealed_spool_needs_the_key_and_stays_unchanged_without_it(tmp_path: Path) -> None:
    filled(tmp_path, 2, keys_of(SID))
    whole = (tmp_path / "live").read_bytes()
    with pytest.raises(KeyMissing):
        read_spool(tmp_path, session_id=SID)
    with pytest.raises(KeyMissing):
        Spool.open(tmp_path, session_id=SID)
    assert (tmp_path / "live").read_bytes() == whole


def test_records_sealed_before_a_key_rotation_are_read_after_it(tmp_path: Path) -> None:
    filled(tmp_path, 2, keys_of(SID))
    rotated = keys_of(SID, KEYSET.rotated())
    spool = Spool.open(tmp_path, session_id=SID, keys=rotated)
    spool.append({})
    spool.close()
    assert numbers(tmp_path, rotated) == [1, 2, 3]
    with pytest.raises(WrongKey):
        read_spool(tmp_path, session_id=SID, keys=keys_of(SID))


# --- a disk that refuses -----------------------------------------------------------------------------------------

FULL_DISK = """
    import json, os, pathlib, resource, sys
    from snapshot_plugin.errors import StoreUnavailable
    from snapshot_plugin.live.spool import Spool
    from snapshot_plugin.live.spool import read_spool

    directory = pathlib.Path(sys.argv[1])
    spool = Spool.open(directory, session_id="session-1")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    report = []

    def attempt(call):
        try:
            report.append(call())
        except StoreUnavailable as error:
            report.append(error.code)
        found = read_spool(directory, session_id="session-1")
        report.append([[r.n for r in found.records], found.torn, found.damage])

    attempt(lambda: spool.append({"text": "x" * 4000}))
    attempt(lambda: spool.append({"text": "x" * 9000}))
    attempt(lambda: spool.append({"text": "small enough"}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    attempt(lambda: spool.append({"text": "x" * 9000}))
    print(json.dumps(report))
"""


@pytest.mark.requirement("MANAGER-SPOOL-FULL")
def test_append_beyond_a_size_limit_is_refused_and_rolled_back(tmp_path: Path) -> None:
    report = json.loads(output_of(FULL_DISK, tmp_path)[0])
    assert report == [
        1,
        [[1], False, None],
        "store_unavailable",
        [[1], False, None],
        2,
        [[1, 2], False, None],
        3,
        [[1, 2, 3], False, None],
    ]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(tmp_path)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small disk needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill_up(spool: Spool) -> int:
    """Append until the disk refuses; how many records there is room for."""
    for count in range(100):
        try:
            assert spool.append({"text": "x" * 5000}) == count + 1
        except StoreUnavailable:
            return count
    pytest.fail("the disk is larger than it should be")


@pytest.mark.requirement("MANAGER-SPOOL-FULL")
def test_full_disk_loses_only_the_refused_records(small_disk: Path, keys: SessionKeys | None) -> None:
    spool = Spool.open(small_disk, session_id=SID, keys=keys)
    full = fill_up(spool)
    assert full > 5
    assert numbers(small_disk, keys) == list(range(1, full + 1))
    with pytest.raises(StoreUnavailable):
        spool.append({"text": "x" * 5000})
    assert spool.last == full
    spool.truncate(full)
    assert spool.append({"text": "x" * 5000}) == full + 1
    spool.close()
    assert numbers(small_disk, keys) == [full + 1]


def test_truncate_needs_no_room_on_a_full_disk(small_disk: Path) -> None:
    spool = Spool.open(small_disk, session_id=SID)
    full = fill_up(spool)
    spool.truncate(20)
    assert numbers(small_disk) == list(range(21, full + 1))
    with pytest.raises(StoreUnavailable):
        spool.append({"text": "x" * 5000})
    assert numbers(small_disk) == list(range(21, full + 1))
    spool.truncate(full)
    assert numbers(small_disk) == []
    assert spool.append({"text": "x" * 5000}) == full + 1
    spool.close()


def test_tail_that_could_not_be_rolled_back_is_cut_before_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool.open(tmp_path, session_id=SID)
    spool.append({"i": 1})
    real_write = os.pwrite

    def refuse(*_args: object) -> int:
        raise OSError(28, "no space")

    def half(fd: int, data: bytes, at: int) -> int:
        monkeypatch.setattr(os, "pwrite", refuse)
        return real_write(fd, data[: len(data) // 2], at)

    monkeypatch.setattr(os, "pwrite", half)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(StoreUnavailable):
        spool.append({"text": "x" * 100})
    assert read_spool(tmp_path, session_id=SID).torn
    monkeypatch.setattr(os, "pwrite", real_write)
    with pytest.raises(StoreUnavailable):
        spool.append({"i": 2})
    monkeypatch.undo()
    assert spool.append({"i": 2}) == 2
    spool.close()
    assert numbers(tmp_path) == [1, 2]


def test_after_a_failed_sync_every_flush_fails_until_the_file_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(fail: bool) -> Callable[[int], None]:
        def sync_data(fd: int) -> None:
            synced.append(names[os.fstat(fd).st_ino])
            if fail:
                raise OSError(5, "input/output error")

        return sync_data

    spool = Spool.open(tmp_path, session_id=SID)
    names = {path.stat().st_ino: path.name for path in tmp_path.iterdir()}
    spool.append({"i": 1})
    monkeypatch.setattr(spool_module, "sync_data", sync(fail=True))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            spool.flush()
    monkeypatch.setattr(spool_module, "sync_data", sync(fail=False))
    assert spool.append({"i": 2}) == 2
    spool.truncate(1)  # the second record is still in the file whose sync failed
    assert spool.append({"i": 3}) == 3
    with pytest.raises(StoreUnavailable):
        spool.flush()
    assert synced == ["live"]
    spool.truncate(2)
    spool.flush()
    assert sorted(synced[1:]) == ["live", "live.1"]
    spool.close()
    assert numbers(tmp_path) == [3]


def test_the_directory_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(spool_module, "sync_dir", synced.append)
    spool = Spool.open(tmp_path, session_id=SID)
    for step in range(6):
        spool.append({"step": step})
        spool.append({})
        spool.flush()
        spool.truncate(spool.last - step % 2)
    assert synced == [tmp_path]
    spool.close()


# --- two files ---------------------------------------------------------------------------------------------------


def left_in_both(directory: Path, keys: SessionKeys | None = None) -> None:
    """Records 1 to 3 in ``live``, of which a snapshot has the first, and 4 to 5 in ``live.1``."""
    spool = Spool.open(directory, session_id=SID, keys=keys)
    for i in range(1, 4):
        spool.append({"i": i})
    spool.truncate(1)
    for i in range(4, 6):
        spool.append({"i": i})
    spool.close()


def test_records_in_both_files_are_found_and_continued(tmp_path: Path, keys: SessionKeys | None) -> None:
    left_in_both(tmp_path, keys)
    for name in ("live", "live.1"):
        assert len(scan((tmp_path / name).read_bytes(), SID).records) == {"live": 3, "live.1": 2}[name]
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    spool = Spool.open(tmp_path, session_id=SID, keys=keys)
    assert [(record.n, record.data) for record in spool.found] == [(n, {"i": n}) for n in range(2, 6)]
    assert spool.append({"i": 6}) == 6
    spool.truncate(3)
    assert numbers(tmp_path, keys) == [4, 5, 6]
    spool.close()


@pytest.mark.requirement("MANAGER-SPOOL-DAMAGE", "MANAGER-SPOOL-ASIDE")
def test_records_after_damage_in_the_other_file_are_set_aside_with_it(
    tmp_path: Path, keys: SessionKeys | None
) -> None:
    left_in_both(tmp_path, keys)
    files = {name: (tmp_path / name).read_bytes() for name in ("live", "live.1")}
    third = scan(files["live"], SID).records[2]
    damaged = bytearray(files["live"])
    damaged[third.start + 18] ^= 1
    write(tmp_path, bytes(damaged))
    assert [record.n for record in read_spool(tmp_path, session_id=SID, keys=keys).records] == [2]
    spool = Spool.open(tmp_path, session_id=SID, keys=keys)
    assert spool.damage is not None
    assert spool.set_aside == f"{tmp_path / 'live.aside-1'} and {tmp_path / 'live.aside-2'}"
    assert (tmp_path / "live.aside-1").read_bytes() == damaged
    assert (tmp_path / "live.aside-2").read_bytes() == files["live.1"]
    assert spool.append({}) == 3
    spool.close()
    assert numbers(tmp_path, keys) == [2, 3]


def test_a_file_that_is_gone_is_noticed_by_the_numbers(tmp_path: Path) -> None:
    left_in_both(tmp_path)
    (tmp_path / "live").unlink()
    found = read_spool(tmp_path, session_id=SID)
    assert [record.n for record in found.records] == [4, 5]
    with pytest.raises(SnapshotCorrupted):
        unsaved(found.records, 1, SID)


def old_file(directory: Path, base: int, *numbers: int) -> None:
    """What releases before 0.3.0 write."""
    begin = header(SID, base=base, sealed=False, version=1)
    write(directory, begin + b"".join(framed(n, b"{}", seed_of(SID)) for n in numbers))


@pytest.mark.requirement("MANAGER-SPOOL-VERSION")
def test_older_releases_read_a_spool_that_was_emptied_and_refuse_one_that_was_not(tmp_path: Path) -> None:
    left_in_both(tmp_path)
    assert (tmp_path / "live").read_bytes().startswith(b"ASNAPSP2")
    assert spool_has_records(tmp_path)
    spool = Spool.open(tmp_path, session_id=SID)
    spool.truncate(5)
    assert spool_has_records(tmp_path)
    spool.close()
    assert not spool_has_records(tmp_path)
    assert (tmp_path / "live").read_bytes() == header(SID, base=5, sealed=False, version=1)


@pytest.mark.requirement("MANAGER-SPOOL-NUMBERS")
def test_spool_of_an_older_release_is_continued_in_its_file_until_that_is_emptied(tmp_path: Path) -> None:
    old_file(tmp_path, 3, 2, 3, 4, 5)
    spool = Spool.open(tmp_path, session_id=SID)
    assert [record.n for record in spool.found] == [4, 5]
    assert spool.append({}) == 6
    spool.truncate(5)
    assert spool.append({}) == 7
    assert scan((tmp_path / "live").read_bytes(), SID).version == 1
    assert [record.n for record in scan((tmp_path / "live").read_bytes(), SID).records] == [2, 3, 4, 5, 6, 7]
    spool.truncate(7)
    assert spool.append({}) == 8
    assert scan((tmp_path / "live").read_bytes(), SID).version == 2
    spool.close()
    assert numbers(tmp_path) == [8]


def test_second_file_does_not_count_beside_one_of_an_older_release(tmp_path: Path) -> None:
    left_in_both(tmp_path)
    old_file(tmp_path, 8, 9)
    assert numbers(tmp_path) == [9]
    spool = Spool.open(tmp_path, session_id=SID)
    spool.truncate(9)
    assert spool.append({}) == 10
    spool.close()
    assert numbers(tmp_path) == [10]


def test_reader_finds_every_record_while_the_owner_changes_files(tmp_path: Path) -> None:
    spool, stop, saved = Spool.open(tmp_path, session_id=SID), threading.Event(), 0

    def record() -> None:
        nonlocal saved
        while not stop.is_set():
            for _ in range(3):
                spool.append({})
            saved = spool.last - 1
            spool.truncate(saved)

    owner = threading.Thread(target=record)
    owner.start()
    try:
        for _ in range(60):
            before = saved
            found = read_spool(tmp_path, session_id=SID)
            assert found.damage is None
            there = [record.n for record in found.records]
            assert there == list(range(there[0], there[-1] + 1)) if there else True
            unsaved(found.records, saved, SID)  # as `with_spool`: the snapshot is read after the records
            assert not there or there[-1] >= before
    finally:
        stop.set()
        owner.join(PATIENCE)
    spool.close()
