"""The log. Lines of Python and C go through C, so format and clock are the same: `[INFO ][  8.79][pytorch] Program (63): text`."""

from __future__ import annotations

import logging
import re
import sys

from . import _core

_LEVELS = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_LOGGING = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, 5)  # logging has no name for TRACE
_LINE = re.compile(r"\[\w+ *\]\[ *[\d.]+\]\[(\w+)\] (\w+) \((\d+)\): (.*)", re.DOTALL)


def to_logging(logger: str | None = "sol") -> None:
    """Sends the log to Python's `logging`, to children of this logger (`sol.core`, `sol.pytorch`, ..). None: back to standard
    error. The key log::level still selects the lines; handlers and levels of `logging` then apply to them."""
    if logger is None:
        _core.set_log(None)
        return

    def hand_over(level: int, line: str) -> None:
        found = _LINE.fullmatch(line)
        module, file, number, text = found.groups() if found else ("core", "sol", "0", line)
        to = logging.getLogger(f"{logger}.{module}")
        if to.isEnabledFor(_LOGGING[level]):
            to.handle(to.makeRecord(to.name, _LOGGING[level], file, int(number), text, (), None))

    _core.set_log(hand_over)


def _level() -> int:
    name = _core.config_get("log::level")
    return _LEVELS.index(name) if name in _LEVELS else 2


def _put(level: int, text: str, depth: int) -> None:
    frame = sys._getframe(depth)
    module = frame.f_globals.get("__name__", "sol").split(".")
    where = module[1] if len(module) > 2 else "python"
    _core.log(level, where, frame.f_code.co_filename, frame.f_lineno, text)


def warn(text: str) -> None:
    """Logs a warning."""
    _put(1, text, 2)


def info(text: str) -> None:
    """Logs what a user may want to know."""
    _put(2, text, 2)


def debug(text: str) -> None:
    """Logs a detail."""
    if _level() >= 3:
        _put(3, text, 2)


def memory(kind: str, net: _core.Net, what: str) -> None:
    """Logs the memory estimate before a program's first run: where sizes vary, as a formula and for the example; for training,
    for each setting of training::memory."""
    if _level() < 2:
        return
    found = net.memory
    each = {word: found[f"if_{word}"] for word in ("fast", "balanced", "small")}
    notes = [f"{word} ~{_bytes(n)}" for word, n in each.items()] if any(each.values()) else []
    sizes = ", ".join(f"#{i} = {d[1]}" for i, d in enumerate(net.dims))
    peak = net.peak if sizes else _bytes(found["peak"])
    if sizes:
        notes.insert(0, f"~{_bytes(found['peak'])} at {sizes}")
    settings = f" ({', '.join(notes)})" if notes else ""
    _put(2, f"Estimated Peak Memory Consumption: {kind} ~{peak}{settings}: {what}", 2)


def _bytes(n: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f}{unit}" if unit == "B" or n >= 10 else f"{n:.1f}{unit}"
        n /= 1000
    raise AssertionError


__all__ = ["to_logging"]
