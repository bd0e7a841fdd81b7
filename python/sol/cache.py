"""The cache of compiled kernels and modules (configuration key `cache::folder`)."""

from __future__ import annotations

from . import _core


def folder() -> str:
    """Returns the folder of the cache; an empty text means that the cache is turned off."""
    return _core.cache_folder()


def clear() -> None:
    """Deletes everything that was compiled. Existing networks remain usable."""
    _core.cache_clear()
