"""A progress bar in notebooks during compiling and tuning. src/base/progress.c draws the one in terminals."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from . import _core

_EVERY_S = 0.1


def _is_notebook() -> bool:
    """Whether this process belongs to a notebook. Jupyter's shells have a kernel; IPython's shell on a terminal has none."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return getattr(get() if get else None, "kernel", None) is not None


class _Bar:
    """The bar appears when work begins, is updated a few times a second, and disappears when the work is done."""

    def __init__(self) -> None:
        self.shown: Any = None  # IPython's handle of what is displayed
        self.begin = self.drawn = 0.0

    def __call__(self, what: str | None, done: int, total: int) -> None:
        from IPython.display import HTML, display

        now = time.monotonic()
        if what is None:
            if self.shown is not None:
                self.shown.update(HTML(""))
            self.shown = None
        elif self.shown is None:
            self.begin = self.drawn = now
            self.shown = display(HTML(self._text(what, done, total, 0)), display_id=True)
        elif done == total or now - self.drawn >= _EVERY_S:
            self.drawn = now
            self.shown.update(HTML(self._text(what, done, total, now - self.begin)))

    @staticmethod
    def _text(what: str, done: int, total: int, seconds: float) -> str:
        said = html.escape(what)
        if total <= 0:
            return f"{said}, {seconds:.0f} s"
        return f'{said} <progress value="{done}" max="{total}"></progress> {done} of {total}, {seconds:.0f} s'


def begin() -> None:
    """Shows progress if this is a notebook."""
    if _is_notebook():
        _core.set_progress(_Bar())
