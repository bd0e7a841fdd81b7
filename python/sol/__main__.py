"""`python -m sol`: prints versions, frameworks and devices, and checks what SOL needs on this machine.

`python -m sol COMMAND ..` runs the command `sol` of the same installation.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from pathlib import Path

from . import _core, api

_FRAMEWORKS = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "onnx": "onnx",
    "numpy": "numpy",
}  # SOL's name, and the package
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


def _program() -> Path | None:
    """The command `sol` that was installed with this package, or built beside it in a checkout."""
    try:
        installed = importlib.metadata.files("sol") or []
    except importlib.metadata.PackageNotFoundError:
        installed = []
    found = [Path(str(f.locate())).resolve() for f in installed if f.name == "sol" and f.parent.name == "bin"]
    found.append(Path(_core.__file__).resolve().parents[1] / "cli" / "sol")
    return next((path for path in found if os.access(path, os.X_OK) and path.is_file()), None)


def _run(arguments: list[str]) -> int:
    """Becomes the command `sol`. Returns only if there is none."""
    program = _program()
    if program:
        sys.stdout.flush()
        os.execv(program, ["sol", *arguments])
    print(
        "python -m sol: the command `sol` is not beside this package: install it again, pip install .", file=sys.stderr
    )
    return _EXIT_FAILED


def main() -> int:
    """Prints everything, or runs a command. The exit code is 4 if this machine cannot optimize networks."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        return _run(sys.argv[1:])
    parser = argparse.ArgumentParser(
        prog="python -m sol",
        description="Prints versions, frameworks and devices, and checks what SOL needs on this machine.",
        epilog="`python -m sol COMMAND ..` runs the command `sol`; `python -m sol help` lists its commands.",
    )
    parser.add_argument("--version", action="version", version=f"sol {_core.version()}")
    parser.add_argument("--config", action="store_true", help="also prints the configuration")
    options = parser.parse_args()
    _row("sol", _core.version())
    _row("python", f"{sys.version.split()[0]} ({sys.executable})")
    _frameworks()
    for device in api.devices():
        marks = ", default" if device["default"] else ""
        facts = f"not there: {device['why']}" if device["why"] else f"{device['name']} ({device['cores']} cores{marks})"
        _row("devices", f"{device['type']}:{device['index']}: {facts}")
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
