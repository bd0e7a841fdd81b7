"""The programs of one function, one for each combination of sizes, limited to those used last.

A program is compiled once, without holding the lock. A thread whose program exists does not wait for a thread that
compiles another one. Threads that need the same new program wait for the thread that compiles it."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from . import _core, log

Program = TypeVar("Program")

MOST_PROGRAMS = 16
MOST_REMEMBERED = 1 << 12  # of the keys whose programs were dropped
SHARE_OF_MEMORY = 0.25  # share of the machine's memory that all programs together may hold


class _Entry(Generic[Program]):
    """A program, or a mark that a thread is compiling it."""

    def __init__(self) -> None:
        self.program: Program | None = None
        self.done = threading.Event()


def latest(model: Any) -> _core.Net | None:
    """The network that an optimized model of any framework used last; None: it was not called, or is no optimized model.
    The attribute `_sol` of such a model has a method `latest`, which returns the network or a program with a `net`."""
    state = getattr(model, "_sol", None)
    found = None if state is None else state.latest()
    net: _core.Net | None = getattr(found, "net", found)
    return net


class Programs(Generic[Program]):
    """At most `most` programs, fewer if their bytes together are more than a share of the machine's memory."""

    def __init__(
        self,
        name: str,
        make: Callable[[Hashable], Program],
        bytes_of: Callable[[Program], int],
        most: int = MOST_PROGRAMS,
    ) -> None:
        self._name = name  # of the function, for messages
        # a method's object has these programs: both end with its last user, not when the garbage collector comes
        self._make = weakref.WeakMethod(make) if inspect.ismethod(make) else lambda: make
        self._bytes_of = bytes_of
        self._most = most
        self._limit = SHARE_OF_MEMORY * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._entries: OrderedDict[Hashable, _Entry[Program]] = OrderedDict()
        self._lock = threading.Lock()
        self._dropped: set[int] | None = (
            set()
        )  # hashes of the keys that were dropped; None: it was said that one came again
        _alive.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Program:
        """Returns the program for this key, and makes it if necessary. An exception of `make` is raised in every waiting thread."""
        while True:
            with self._lock:
                entry = self._entries.get(key)
                mine = entry is None
                if entry is None:
                    entry = self._entries[key] = _Entry()
                self._entries.move_to_end(key)
            if mine:
                return self._fill(key, entry)
            entry.done.wait()
            if entry.program is not None:
                return entry.program  # the other thread failed: this thread tries itself and raises its own exception

    def latest(self) -> Program | None:
        """The program used last."""
        with self._lock:
            return next((e.program for e in reversed(self._entries.values()) if e.program is not None), None)

    def _fill(self, key: Hashable, entry: _Entry[Program]) -> Program:
        self._say_again(key)
        try:
            make = self._make()
            assert make is not None  # its object is what asks
            program = make(key)
        except BaseException:
            with self._lock:
                del self._entries[key]
            raise
        else:
            entry.program = program
            self._drop()
            return program
        finally:
            entry.done.set()

    def _drop(self) -> None:
        """Drops the least recently used programs, but never the last one."""
        with self._lock:
            ready = [(key, e.program) for key, e in self._entries.items() if e.program is not None]
            total = sum(self._bytes_of(program) for _, program in ready)
            for key, program in ready[:-1]:
                if len(ready) <= self._most and total <= self._limit:
                    break
                total -= self._bytes_of(program)
                ready = ready[1:]
                del self._entries[key]
                if self._dropped is not None and len(self._dropped) < MOST_REMEMBERED:
                    self._dropped.add(hash(key))

    def _say_again(self, key: Hashable) -> None:
        """Logs once that a program was dropped and is needed again."""
        with self._lock:
            if self._dropped is None or hash(key) not in self._dropped:
                return
            self._dropped, kept = None, sum(e.program is not None for e in self._entries.values())
        log.warn(
            f"{self._name}: is called with more combinations of sizes than the {kept} programs that are kept (those used last, at "
            f"most {self._most} and {SHARE_OF_MEMORY:.0%} of the memory), so calls load programs again from the cache, which takes "
            "longer than a call; pad the inputs to fewer sizes, or call sol.optimize once for each group of sizes"
        )

    def _after_fork(self) -> None:
        """In a forked child: threads that held the lock or compiled a program do not exist."""
        self._lock = threading.Lock()
        for key in [key for key, entry in self._entries.items() if not entry.done.is_set()]:
            del self._entries[key]


_alive: weakref.WeakSet[Programs] = weakref.WeakSet()


def _renew() -> None:
    for programs in list(_alive):
        programs._after_fork()


os.register_at_fork(after_in_child=_renew)
