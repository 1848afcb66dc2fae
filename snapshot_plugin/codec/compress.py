"""Raw DEFLATE, by the fastest library that is installed. The output format is the same either way."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

from snapshot_plugin.errors import SnapshotCorrupted

__all__ = [
    "Effort",
    "accelerated",
    "deflate",
    "inflate",
    "inflate_start",
    "quick_zlib",
    "stored",
    "stored_size",
    "stream_length",
    "unstored",
]

Effort = Literal["hot", "sent", "best"]
_RAW = -15
_CHUNK, _WINDOW = 1 << 16, 1 << 20
_BLOCK = 0xFFFF
_STORED = 1 << 17
"""Up to this many bytes are stored uncompressed while a session is live."""
_AT_ONCE = 1 << 16
"""Streams up to this length are decompressed in one step. A forged one yields at most 1032 times as much."""


@cache
def _library() -> Any:
    try:
        from isal import isal_zlib  # noqa: PLC0415 — optional extra [fast]
    except ImportError:
        return zlib
    return isal_zlib


def accelerated() -> bool:
    """True when the extra ``[fast]`` is installed and in use."""
    return _library() is not zlib


def deflate(data: bytes, effort: Effort = "hot") -> bytes:
    """Compress *data*. ``hot`` stores small data uncompressed, ``sent`` is fast, ``best`` is small.

    For the text of one turn, a longer write to a local disk (``hot``) costs less than the fastest compression; over
    a network (``sent``) it costs more. Rewritten frames use ``best``.
    """
    packer: Any
    if effort == "best":
        packer = zlib.compressobj(6, zlib.DEFLATED, _RAW)  # level 9 takes half as long again for half a percent
    elif effort == "hot" and len(data) <= _STORED:
        return stored(data)
    else:
        packer = _library().compressobj(2 if accelerated() else 1, zlib.DEFLATED, _RAW)
    return bytes(packer.compress(data) + packer.flush())


def quick_zlib(data: bytes) -> bytes:
    """*data* as a zlib stream, compressed at the fastest level."""
    return bytes(_library().compress(data, 1))


def stored(data: bytes) -> bytes:
    """A DEFLATE stream that stores *data* uncompressed."""
    parts = []
    for at in range(0, len(data) or 1, _BLOCK):
        block = data[at : at + _BLOCK]
        parts += [struct.pack("<BHH", at + _BLOCK >= len(data), len(block), len(block) ^ _BLOCK), block]
    return b"".join(parts)


def unstored(data: bytes | memoryview, size: int) -> bytes | None:
    """The *size* bytes that `stored` made *data* of; None if it would have made something else of them."""
    if len(data) != stored_size(size):
        return None
    view, parts = memoryview(data), []
    for at in range(0, size or 1, _BLOCK):
        start, length = len(data) - stored_size(size - at), min(_BLOCK, size - at)
        if view[start : start + 5] != struct.pack("<BHH", at + _BLOCK >= size, length, length ^ _BLOCK):
            return None
        parts.append(view[start + 5 : start + 5 + length])
    return b"".join(parts)


def stored_size(size: int) -> int:
    """The length of what `stored` returns for *size* bytes."""
    return size + 5 * max(1, -(-size // _BLOCK))


def _unpacker() -> Any:
    if not accelerated():
        return zlib.decompressobj(_RAW)
    from isal import igzip_lib  # noqa: PLC0415 — optional extra [fast]

    # Not isal_zlib's decompressobj, which consumes up to six bytes after the end of a stream.
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)


def inflate(data: bytes | memoryview, size: int) -> bytes:
    """Decompress a stream that fills *data* exactly and yields exactly *size* bytes.

    A forged stream that yields more is stopped after *size* bytes, or after 64 MB.

    Raises:
        SnapshotCorrupted: the stream is invalid, ends early or late, or yields another number of bytes.
    """
    unpacker = _unpacker()
    if len(data) <= _AT_ONCE and not accelerated():
        # Into one buffer of that size: `decompress` alone grows its buffer in steps, and waits for the interpreter
        # lock at each while other threads run.
        out = _guard(lambda: unpacker.decompress(data, 1) + unpacker.flush(size or 1))
    else:
        out = _guard(lambda: unpacker.decompress(data, size + 1))
    if len(out) != size or not unpacker.eof or unpacker.unused_data:
        raise SnapshotCorrupted(f"a frame declares {size} bytes of content and holds another number")
    return out


def inflate_start(data: bytes | memoryview, limit: int) -> bytes:
    """Decompress at most the first *limit* bytes."""
    return _guard(lambda: zlib.decompressobj(_RAW).decompress(data, limit)) if limit else b""


def stream_length(data: bytes) -> int | None:
    """The length of the stream at the start of *data*; None if the stream is longer. The output is discarded."""
    unpacker = zlib.decompressobj(_RAW)
    for at in range(0, len(data), _CHUNK):
        rest = data[at : at + _CHUNK]
        while rest and not unpacker.eof:
            _guard(partial(unpacker.decompress, rest, _WINDOW))
            rest = unpacker.unconsumed_tail
        if unpacker.eof:
            return min(at + _CHUNK, len(data)) - len(unpacker.unused_data)
    return None


def _guard(run: Callable[[], bytes]) -> bytes:
    try:
        return run()
    except (zlib.error, _library().error) as error:
        raise SnapshotCorrupted(f"a frame does not decompress: {error}") from error
