"""The cache of compiled kernels and modules (configuration key `cache::folder`)."""

from __future__ import annotations

from . import _core


def clear() -> None:
    """Forgets everything that was compiled; networks that exist keep running."""
    _core.cache_clear()
