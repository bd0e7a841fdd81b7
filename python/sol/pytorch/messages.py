"""Strings that a model makes for people only: messages of assertions, logs and warnings. Their text does not matter for results, so a size
that varies may stand in them without being a guard."""

from __future__ import annotations

import ast
import functools
import linecache
import logging
import types
import warnings
from collections.abc import Mapping
from typing import Any

import torch

_SAY = (print, warnings.warn, torch._assert)
_LEVELS = frozenset("debug info warning error exception critical log".split())


def in_message(frame: types.FrameType) -> bool:
    """Whether the statement that runs in a frame only says something."""
    found = [_callee(s, frame) for s in _statements(frame.f_code.co_filename, frame.f_lineno)]
    return bool(found) and all(map(_says, found))


def _says(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    logs = isinstance(owner, logging.Logger | logging.LoggerAdapter) or getattr(function, "__module__", "") == "logging"
    return function in _SAY or (logs and getattr(function, "__name__", "") in _LEVELS)


@functools.lru_cache(maxsize=64)
def _parsed(file: str) -> list[ast.stmt]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


@functools.lru_cache(maxsize=1024)
def _statements(file: str, line: int) -> list[ast.stmt]:
    """The shortest statements that a line belongs to."""
    around = [s for s in _parsed(file) if s.lineno <= line <= (s.end_lineno or s.lineno)]
    least = min(((s.end_lineno or s.lineno) - s.lineno for s in around), default=0)
    return [s for s in around if (s.end_lineno or s.lineno) - s.lineno == least]


def _callee(statement: ast.stmt, frame: types.FrameType) -> Any:
    """The function that a statement calls by its name, without using its result. None: it does something else."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    return _value(statement.value.func, {**frame.f_builtins, **frame.f_globals, **frame.f_locals})


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, known), node.attr, None)
    if isinstance(node, ast.Call) and _value(node.func, known) is logging.getLogger:
        return logging.getLogger()
    return known.get(node.id) if isinstance(node, ast.Name) else None


__all__ = ["in_message"]
