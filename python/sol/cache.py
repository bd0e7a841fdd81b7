"""The cache of compiled kernels and modules (configuration key `cache::folder`)."""

from __future__ import annotations

from . import _core


def folder() -> str:
    """Where it is; empty: the key says that there is none."""
    return _core.cache_folder()


def clear() -> None:
    """Forgets everything that was compiled; networks that exist keep running."""
    _core.cache_clear()
