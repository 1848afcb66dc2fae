"""What a forked child (`os.fork`, `multiprocessing` on Linux) does first; and locks that it always finds free.

A child has one thread: the one that forked. A lock that another thread of the parent held at that moment would stay
locked for ever in the child. Every lock of this package that outlives a call is therefore made here, and renewed in
the child (`tests/meta/test_forks.py` looks for others). They are stock locks: taking one costs nothing extra.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

__all__ = ["condition", "event", "in_child", "lock", "rlock"]

L = TypeVar("L")


def lock() -> threading.Lock:
    """A `threading.Lock` that is free in a forked child."""
    return _renewed(threading.Lock())


def rlock() -> threading.RLock:
    """A `threading.RLock` that is free in a forked child."""
    return _renewed(threading.RLock())


def condition() -> threading.Condition:
    """A `threading.Condition` that is free in a forked child, where nobody waits for it."""
    return _renewed(threading.Condition())


def event() -> threading.Event:
    """A `threading.Event` that can be set, and waited for, in a forked child."""
    return _renewed(threading.Event())


def in_child(work: Callable[[], object]) -> None:
    """Call *work* in every forked child, once its locks are renewed. The object of a method is kept weakly."""
    if isinstance(work, MethodType):
        _methods.setdefault(work.__self__, []).append(work.__func__)
    else:
        _functions.append(work)


_locks: WeakSet[Any] = WeakSet()
_methods: WeakKeyDictionary[object, list[Callable[..., object]]] = WeakKeyDictionary()
_functions: list[Callable[[], object]] = []


def _renewed(made: L) -> L:
    _locks.add(made)
    return made


def _begin() -> None:
    for made in list(_locks):
        made._at_fork_reinit()  # noqa: SLF001 — as logging and concurrent.futures do
    for work in _functions:
        work()
    for owner, works in list(_methods.items()):
        for each in works:
            each(owner)


if hasattr(os, "register_at_fork"):  # elsewhere, processes do not fork
    os.register_at_fork(after_in_child=_begin)
