#!/usr/bin/env python3
"""Includes go one way: what each folder may include stands in one table. Run by `make lint`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CORE = ["sol", "base", "hlir"]
PRINT = [*CORE, "layers", "print", "rt/rt.h"]  # rt stands alone: it knows how many processors there are
PLAN = [*PRINT, "dfp", "dnn", "plan"]
EVERYTHING = [*PLAN, "passes", "grad", "schedule", "rt", "build", "runtime", "tune", "compile"]

# folder: the folders, or single headers, that it may include; "sol" is include/sol
MAY = {
    "include/sol": ["sol"],
    "src/base": ["sol", "base"],
    "src/rt": ["sol", "rt"],
    "src/build": ["sol", "base", "build", "rt/rt.h"],
    "src/hlir": [*CORE, "layers/layers.h", "layers/math.def", "layers/reduce.def"],  # what a row is, and the rows
    "src/layers": [*CORE, "layers"],
    "src/grad": [*CORE, "layers", "grad"],
    "src/passes": [*CORE, "layers", "passes"],
    "src/print": PRINT,
    "src/dfp": [*PRINT, "dfp"],
    "src/dnn": [*PRINT, "dnn"],
    "src/plan": [*PRINT, "plan"],
    "src/schedule": [*PLAN, "schedule"],
    "src/runtime": ["sol", "base", "rt", "runtime"],
    "src/tune": [*PLAN, "schedule", "runtime", "build", "tune"],
    "src/compile": EVERYTHING,
    "src/doctor": EVERYTHING,
    "src/deploy": [*EVERYTHING, "deploy"],
    "src/onnx": ["sol", "base", "onnx"],  # a frontend: the public interface, and the base for errors and arenas
    "cli": ["sol"],
    "python/sol": ["sol"],
}
# Files that may see more than their folder, and why.
EXTRA = {
    "src/plan/solvers.c": (["dfp", "dnn"], "the table of solvers; the planner knows none by name"),
    "python/sol/_graph.c": (["hlir"], "the interpreter, for tests: it is no part of the public interface"),
    "cli/sol_opt.c": (EVERYTHING, "runs chosen passes on a text graph: a tool for the inside"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def main() -> int:
    bad = 0
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
