#!/usr/bin/env python3
"""Checks includes and symbols: a table says what each folder may use. Run by `make lint`.

Symbols are read from the objects in build/ if there are any, because a local declaration can hide a dependence from
a check of includes.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CORE = ["sol", "base", "hlir"]
PRINT = [*CORE, "layers", "print", "rt/rt.h"]  # rt depends on nothing and knows the number of processors
PLAN = [*PRINT, "dfp", "dnn", "plan"]
EVERYTHING = [*PLAN, "passes", "grad", "schedule", "rt", "build", "device", "runtime", "tune", "compile", "extend"]

# folder: the folders, or single headers, that it may include; "sol" is include/sol
MAY = {
    "include/sol": ["sol"],
    "src/base": ["sol", "base"],
    "src/rt": ["sol", "rt"],
    "src/build": ["sol", "base", "build", "rt/rt.h"],
    "src/hlir": CORE,
    "src/layers": [*CORE, "layers"],
    "src/grad": [*CORE, "layers", "passes", "grad"],
    "src/passes": [*CORE, "layers", "passes"],
    "src/print": PRINT,
    "src/dfp": [*PRINT, "dfp"],
    "src/dnn": [*PRINT, "dnn"],
    "src/plan": [*PRINT, "plan"],
    "src/schedule": [*PLAN, "schedule"],
    "src/device": ["sol", "base", "rt", "build", "device", "print/kernel.h"],  # print has the table of processors
    "src/runtime": ["sol", "base", "rt", "device", "runtime"],
    "src/tune": [*PLAN, "schedule", "runtime", "build", "tune"],
    "src/compile": EVERYTHING,
    "src/extend": [*CORE, "layers", "passes", "build", "extend"],
    "src/doctor": EVERYTHING,
    "src/deploy": [*EVERYTHING, "deploy"],
    "src/onnx": ["sol", "base", "onnx"],  # a frontend: the public interface, and the base for errors and arenas
    "src/ort": ["sol", "base", "onnx", "ort"],  # a frontend, too: it hands ONNX models to the reader
    "cli": ["sol"],
    "python/sol": ["sol"],
}
# Files that may include more than their folder, and why.
EXTRA = {
    "src/plan/solvers.c": (["dfp", "dnn"], "the table of solvers; the planner knows none by name"),
    "python/sol/_native.c": (["pytorch/native/native.h"], "the table that native.cpp calls"),
    "python/sol/_graph.c": (["hlir"], "the interpreter, for tests: it is no part of the public interface"),
    **{
        f"cli/device_test/{name}": (EVERYTHING, "checks device types, which only the inside sees")
        for name in ("bench.h", "code.c", "nets.c")
    },
    "cli/sol_opt.c": (EVERYTHING, "runs chosen passes on a text graph: a tool for the inside"),
}

FRONTENDS = ["src/onnx"]  # they call functions of include/sol, wherever these are defined

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def source_of(obj: Path) -> Path:
    """src_hlir_loops.c.o: src/hlir/loops.c"""
    return Path(*obj.name.removesuffix(".o").split("_", 2))


def check_symbols(objects: list[Path]) -> int:
    """Checks that each symbol an object needs is defined in a folder that the object may include."""
    objects = [o for o in objects if (ROOT / source_of(o)).exists()]
    if not objects:
        return 0
    defined: dict[str, Path] = {}
    needed: list[tuple[str, Path]] = []
    for line in subprocess.run(
        ["nm", "-A", "-g", *objects], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        path, _, rest = line.partition(":")
        kind, name = rest.split()[-2:]
        if kind == "U":
            needed.append((name, source_of(Path(path))))
        else:
            defined[name] = source_of(Path(path))
    bad = 0
    for name, user in needed:
        folder = str(user.parent)
        if name not in defined or folder not in MAY or (folder in FRONTENDS and name.startswith("sol_")):
            continue
        may = [*MAY[folder], *EXTRA.get(str(user), ([], ""))[0]]
        if defined[name].parent.name not in {m.split("/")[0] for m in may}:
            print(f"{user}: uses {name} of {defined[name]}, but {folder} may only use {', '.join(may)}")
            bad += 1
    return bad


def main() -> int:
    bad = check_symbols(sorted((ROOT / "build").glob("libsol.so*.p/src_*.c.o")))
    for folder, allowed in MAY.items():
        for path in sorted((ROOT / folder).glob("*.[ch]")):
            name = str(path.relative_to(ROOT))
            may = [*allowed, *EXTRA.get(name, ([], ""))[0]]
            for header in INCLUDE.findall(path.read_text()):
                if "/" not in header:
                    continue
                where = header.split("/")[0]
                if where not in may and header not in may:
                    print(f'{name}: includes "{header}", but {folder} may only include {", ".join(may)}')
                    bad += 1
    for path in sorted(ROOT.glob("src/*/")):
        if str(path.relative_to(ROOT)) not in MAY:
            print(f"{path.relative_to(ROOT)}: no row in tools/check_includes.py")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
