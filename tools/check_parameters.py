#!/usr/bin/env python3
"""Checks that functions have at most six parameters; more are a struct. Run by `make lint`.

A function may have more only with a reason in REASONS.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["include", "src", "cli", "plugins", "python/sol"]
MOST = 6
REASONS = {
    "sol_plugin_gemm": "as libraries of matrix products have it; generated code calls it",
    "create_ep": "ONNX Runtime calls it",
    "log_put": "only the macro LOG calls it",
}
FUNCTION = re.compile(r"^[A-Za-z_][\w \t*]*?\b(\w+)\(", re.M)


def functions(text: str) -> list[tuple[str, int, int]]:
    """(name, parameters, line) of what a file declares and defines at its outermost level"""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", "", m.group()), text, flags=re.S)
    found = []
    for m in FUNCTION.finditer(text):
        depth, commas, at = 1, 0, m.end()
        while depth and at < len(text):
            depth += (text[at] in "([{") - (text[at] in ")]}")
            commas += text[at] == "," and depth == 1
            at += 1
        if text[at:].lstrip()[:1] in ("{", ";"):
            found.append((m.group(1), commas + 1, text.count("\n", 0, m.start()) + 1))
    return found


def main() -> int:
    bad, seen = 0, set()
    for path in sorted(p for f in FOLDERS for p in (ROOT / f).rglob("*.[ch]")):
        for name, parameters, line in functions(path.read_text()):
            if parameters <= MOST:
                continue
            seen.add(name)
            if name not in REASONS:
                where = f"{path.relative_to(ROOT)}:{line}"
                print(f"{where}: {name} has {parameters} parameters; at most {MOST}, or a struct")
                bad += 1
    for name in sorted(REASONS.keys() - seen):
        print(
            f"tools/check_parameters.py: no function {name} has more than {MOST} parameters now: take it off the list"
        )
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
