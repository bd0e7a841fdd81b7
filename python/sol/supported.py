"""The versions of other packages that SOL works with. It uses some of their private names, so others are rejected, before anything
else of them is used. pyproject.toml has the same versions, for pip."""

from __future__ import annotations

import importlib.metadata
import sys

from . import _core

TESTED = {"torch": (2, 13), "tensorflow": (2, 21), "keras": (3, 15), "jax": (0, 10)}  # package: (major, minor)
LATER = ("torch",)  # works in later versions, too
_ALSO = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel")}  # other distributions of it


def _installed(package: str) -> str | None:
    for name in (package, *_ALSO.get(package, ())):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return getattr(sys.modules.get(package), "__version__", None)  # a build without metadata


def _fits(package: str, version: str) -> bool:
    found = tuple(int(n) if n.isdigit() else 0 for n in version.split(".")[:2])
    return found == TESTED[package] or (package in LATER and found > TESTED[package])


def check(extra: str, *packages: str) -> None:
    """Raises UnsupportedError if a package is missing, or has another version. extra: of pip, `sol[extra]`."""
    found = {package: _installed(package) for package in packages}
    wrong = [p for p, v in found.items() if v is None or not _fits(p, v)]
    if wrong:
        wants = " and ".join(f"{p} {TESTED[p][0]}.{TESTED[p][1]}{' or later' * (p in LATER)}" for p in packages)
        has = " and ".join(f"{p} {found[p] or '(not installed)'}" for p in wrong)
        raise _core.UnsupportedError(f"SOL: expected {wants}, got {has}; pip install 'sol[{extra}]'")
