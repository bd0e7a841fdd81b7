"""`python -m sol`: prints versions, frameworks and devices, and checks what SOL needs on this machine."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys

from . import _core, api

_FRAMEWORKS = {"pytorch": "torch", "onnx": "onnx", "numpy": "numpy"}  # SOL's name, and the package
_WITHOUT = {"onnx": "not installed: files and bytes work without it, onnx.ModelProto and sol.onnx.Backend do not"}
_EXIT_FAILED = 4  # the same as for the command `sol`


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _row(what: str, text: str) -> None:
    print(f"{what:16}{text}")


def _frameworks() -> None:
    for i, (name, package) in enumerate(_FRAMEWORKS.items()):
        version = _installed(package)
        without = _WITHOUT.get(name, f"not installed (pip install {package})")
        _row("" if i else "frameworks", f"{name}: {f'{package} {version}' if version else without}")


def main() -> int:
    """Prints everything. The exit code is 4 if this machine cannot optimize networks."""
    parser = argparse.ArgumentParser(prog="python -m sol", description=__doc__.partition(": ")[2] if __doc__ else None)
    parser.add_argument("--config", action="store_true", help="also prints the configuration")
    options = parser.parse_args()
    _row("sol", _core.version())
    _row("python", f"{sys.version.split()[0]} ({sys.executable})")
    _frameworks()
    for device in api.devices():
        marks = ", default" if device["default"] else ""
        _row("devices", f"{device['type']}:{device['index']}: {device['name']} ({device['cores']} processors{marks})")
    _row("deployments", "x86, arm64, arm, riscv64: shared_lib, static_lib, source")
    print()
    if options.config:
        api.config.print()
        print()
    checks = _core.doctor()
    for what, state, text, advice in checks:
        print(f"{state.upper() if state == 'broken' else state:8} {what:16} {text}")
        if advice:
            print(f"{'':26}-> {advice}")
    broken = any(state == "broken" for _, state, _, _ in checks)
    print("\nSOL cannot optimize networks here: fix what is BROKEN." if broken else "\nSOL works here.")
    return _EXIT_FAILED if broken else 0


if __name__ == "__main__":
    sys.exit(main())
