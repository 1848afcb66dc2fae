"""What was seen goes to disk: each document is read, added to, and replaced whole."""

from __future__ import annotations

from snapshot_plugin.memory.archive import Archive
from snapshot_plugin.memory.evict import kept_endpoints, kept_errors, kept_timings
from snapshot_plugin.memory.merge import merged_errors, merged_schema, merged_timings, with_filtered
from snapshot_plugin.memory.names import BASELINES, ERROR_HISTORY, NOISE_CONFIG, SCHEMA, TIMINGS
from snapshot_plugin.memory.records import ApiSchema, ErrorHistory, NoiseConfig, Timings
from snapshot_plugin.memory.seen import Seen
from snapshot_plugin.errors import StoreUnavailable

__all__ = ["flush"]


def flush(archive: Archive, seen: Seen) -> None:
    """Put on disk what is only in memory, and empty *seen*.

    Raises:
        MemoryReadOnly: another process writes; *seen* is as it was.
        StoreUnavailable: the disk refuses; nothing is lost while the process lives.
    """
    with archive.lock:
        if archive.sessions.writes or archive.shelf.unsaved or not seen.is_empty:
            archive.become_writer()
            _flush(archive, seen)


def _flush(archive: Archive, seen: Seen) -> None:
    try:
        archive.shelf.retry()
        _flush_seen(archive, seen)
        _flush_uses(archive)
        archive.shelf.retry()  # raises what stood in the way, if anything did
    except StoreUnavailable as error:
        archive.standing.refused(error)
        raise
    archive.standing.well()
    archive.tidy()


def _flush_seen(archive: Archive, seen: Seen) -> None:
    now, limits = archive.clock(), archive.limits
    if seen.errors.entries:
        errors = merged_errors(archive.document(ErrorHistory, ERROR_HISTORY), seen.errors)
        if archive.add(ERROR_HISTORY, kept_errors(errors, limits, now).raw()):
            seen.errors = ErrorHistory()
    if seen.schema.endpoints:
        schema = merged_schema(archive.document(ApiSchema, SCHEMA), seen.schema)
        if archive.add(SCHEMA, kept_endpoints(schema, limits).raw()):
            seen.schema = ApiSchema()
    if seen.timings.endpoints:
        timings = merged_timings(archive.document(Timings, TIMINGS), seen.timings)
        if archive.add(TIMINGS, kept_timings(timings, limits, now).raw()):
            seen.timings = Timings()
    if seen.filtered:
        stored = archive.document(NoiseConfig, NOISE_CONFIG)
        counted = with_filtered(stored, seen.filtered)
        if counted == stored or archive.add(NOISE_CONFIG, counted.raw()):
            seen.filtered.clear()
            archive.apply_noise()


def _flush_uses(archive: Archive) -> None:
    used = {name: at for name, at in archive.shelf.used.items() if name.startswith(f"{BASELINES}/")}
    if used != archive.sessions.meta.used:
        archive.sessions.note(used=used)
