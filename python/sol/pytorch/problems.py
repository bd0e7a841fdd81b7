"""Collects what SOL does not support in a model into one message: each reason once, with its count and first location."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sol import _core

_FOLDERS = tuple(os.path.dirname(f) + os.sep for f in (torch.__file__, _core.__file__))
LIBRARY = (*_FOLDERS, contextlib.__file__)  # files of which no line belongs to the user
_SHOWN = 3  # locations shown for a data type, since a whole model may have it


@dataclass
class Problem:
    """One thing that is not supported."""

    what: str  # the operator; "argument" or "parameter"
    why: str = ""
    where: str = ""  # path and line; of an argument or parameter, its name
    step: torch.fx.Node | None = None  # of the traced graph, if there is one

    @property
    def subject(self) -> str:
        """The subject with its location."""
        return f"{self.what} {self.where}" if self.where else self.what


def where(path: str, line: str) -> str:
    """A location in words."""
    return " ".join(([f"in {path}"] if path else []) + ([f"({line})"] if line else []))


def user_line() -> str:
    """The innermost line that is running and belongs to the user."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*LIBRARY, "<")):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


def users(e: BaseException | None) -> list[traceback.FrameSummary]:
    """The stack frames of the user's model that an exception passed through, innermost first."""
    frames = reversed(traceback.extract_tb(e.__traceback__ if e else None))
    return [f for f in frames if not f.filename.startswith((*LIBRARY, "<"))]


def place(node: torch.fx.Node) -> tuple[str, str]:
    """The location of a node: the path of its module, and the file and line in the user's model."""
    if "place" in node.meta:
        path, line = node.meta["place"]
        return path, line
    stack = node.meta.get("nn_module_stack") or {}
    path = next((p for p, _ in reversed(stack.values()) if p), "") if stack else ""
    return str(path), _innermost(node.meta.get("stack_trace") or "")


def _innermost(trace: str) -> str:
    """The innermost line of a stack trace that belongs to the user."""
    frames = [line.strip() for line in trace.split("\n") if line.strip().startswith("File ")]
    users = [f for f in frames if not f[6:].startswith((*LIBRARY, "<"))]
    if not users:
        return ""
    parts = users[-1].split(", ")
    return f"{os.path.basename(parts[0][6:-1])}:{parts[1].removeprefix('line ')}"


def rejection(problems: Sequence[Problem], unusual: torch.fx.Node | None = None) -> Exception:
    """The exception. Its `steps` are the nodes of the traced graph that cannot be translated; None: unknown."""
    reasons: dict[str, list[Problem]] = {}
    for p in problems:
        reasons.setdefault(p.why or p.what, []).append(p)
    lines = [_line(group) for group in reasons.values()]
    half = "\nmodel.float() makes a model float32" if any("float16" in line for line in lines) else ""
    what = "One thing in this model is" if len(lines) == 1 else f"{len(lines)} things in this model are"
    error = _core.UnsupportedError(f"{what} not supported:\n  " + "\n  ".join(lines) + half)
    return located(error, *(p.step or unusual for p in problems))


def located(error: Exception, *steps: torch.fx.Node | None) -> Exception:
    """Adds the nodes that cannot be translated to an error; parts.py cuts the graph there."""
    error.steps = None if None in steps else set(steps)  # type: ignore[attr-defined]
    return error


def _line(group: Sequence[Problem]) -> str:
    """The line for all problems with the same reason."""
    kinds: dict[str, list[str]] = {}
    for p in group:
        found = kinds.setdefault(p.what, [])
        if p.subject not in found:
            found.append(p.subject)
    shown = [places[0] + (f" and {len(places) - 1} more" if len(places) > 1 else "") for places in kinds.values()]
    why = group[0].why
    if len(shown) == 1:
        what = group[0].what
        places = shown[0].removeprefix(what)
        return (
            f"{what}: {why}{places}"
            if why and what not in ("argument", "parameter")
            else f"{shown[0]}{': ' if why else ''}{why}"
        )
    if why.startswith("data type "):
        rest = sum(len(places) for places in list(kinds.values())[_SHOWN:])
        shown = shown[:_SHOWN] + ([f"{rest} more"] if rest else [])
    return f"{why}: {', '.join(shown)}"


__all__ = ["LIBRARY", "Problem", "located", "rejection", "user_line", "users", "where"]
