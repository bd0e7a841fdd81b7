"""The versions of TensorFlow and Keras that SOL works with. It uses some of their private names, so others are rejected."""

from __future__ import annotations

import importlib.metadata

from sol import _core

TESTED = {
    "tensorflow": (2, 21),
    "keras": (3, 15),
}  # package: (major, minor); what `pip install 'sol[tensorflow]'` installs
_ALSO = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel")}  # other distributions of it


def _installed(package: str) -> str | None:
    for name in (package, *_ALSO.get(package, ())):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def check() -> None:
    """Raises UnsupportedError if a package is missing, or has another version."""
    found = {package: _installed(package) for package in TESTED}
    wrong = [p for p, v in found.items() if v is None or tuple(map(int, v.split(".")[:2])) != TESTED[p]]
    if wrong:
        wants = " and ".join(f"{p} {major}.{minor}" for p, (major, minor) in TESTED.items())
        has = " and ".join(f"{p} {found[p] or '(not installed)'}" for p in wrong)
        raise _core.UnsupportedError(f"sol.tensorflow: expected {wants}, got {has}; pip install 'sol[tensorflow]'")
