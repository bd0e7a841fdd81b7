"""Log lines of the Python side, in the form of the C side's: `[INFO ][  8.79][pytorch] Program (63): text`."""

from __future__ import annotations

import os
import sys
import time

from . import _core

_LEVELS = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_start = time.monotonic()


def _level() -> int:
    name = _core.config_get("log::level")
    return _LEVELS.index(name) if name in _LEVELS else 2


def _put(level: int, text: str, depth: int) -> None:
    frame = sys._getframe(depth)
    name = os.path.splitext(os.path.basename(frame.f_code.co_filename))[0].capitalize()
    module = frame.f_globals.get("__name__", "sol").split(".")
    where = module[1] if len(module) > 2 else "python"
    seconds = time.monotonic() - _start
    print(
        f"[{_LEVELS[level]:5s}][{seconds:6.2f}][{where}] {name} ({frame.f_lineno}): {text}", file=sys.stderr, flush=True
    )


def warn(text: str) -> None:
    """Something a user should know."""
    if _level() >= 1:
        _put(1, text, 2)


def debug(text: str) -> None:
    """What happens, for those who ask."""
    if _level() >= 3:
        _put(3, text, 2)


def memory(kind: str, found: dict[str, int], what: str) -> None:
    """The estimate that is shown before a program's first run; of training, for each setting of training::memory."""
    if _level() >= 2:
        each = {word: found[f"if_{word}"] for word in ("fast", "balanced", "small")}
        settings = ", ".join(f"{word} ~{_bytes(n)}" for word, n in each.items()) if any(each.values()) else ""
        _put(2, f"Estimated Peak Memory Consumption: {kind} ~{_bytes(found['peak'])}"
                f"{f' ({settings})' if settings else ''}: {what}", 2)  # fmt: skip


def _bytes(n: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f}{unit}" if unit == "B" or n >= 10 else f"{n:.1f}{unit}"
        n /= 1000
    raise AssertionError
