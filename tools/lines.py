#!/usr/bin/env python3
"""Counts the lines of SOL that only one device needs: its files, and its rows and hooks in files that others share. Run by
`make lines`; -v shows the rows and hooks.

A row or hook is a line of code that names the device, with what its brackets, its function or its #if contain. Comments,
tests, documentation and what lies in files of another device do not count.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# device: the files that only it uses, and what names it elsewhere
DEVICES: dict[str, tuple[list[str], str]] = {
    "x86": ([], r"x86|i386|\bsse|avx|SSE2|__builtin_cpu"),
    "arm64": ([], r"neon\b|arm64|aarch64"),
    "far": (["src/device/far.c"], r"\bfar_type\b"),
    "opencl": (
        ["src/device/opencl.c", "src/device/cl.c", "src/device/cl.h", "src/build/opencl.cl"],
        r"opencl|FLAVOUR_opencl",
    ),
    "nvidia": (
        [
            "src/device/nvidia.c",
            "src/device/nvidia_compile.c",
            "src/device/cuda.h",
            "src/build/cuda.cu",
            "src/build/cuda_clang.cu",
        ],
        r"nvidia|cuda",
    ),
    "ve": (
        [
            "src/device/ve.c",
            "src/device/ve_compile.c",
            "src/device/texts/ve_main.c",
            "src/device/ve_run.h",
            "src/device/veda.h",
        ],
        r"\bve\b|ve_type|FLAVOUR_loop|ve_texts|_NEC|LONG_LOOP",
    ),
    "remote": (["examples/device_remote/*.[ch]"], r"remote_type|remote\.[ch]\b"),
}
# calls of libraries of a device's maker, which count apart
LIBRARIES = ["src/device/nvidia_blas.c", "src/device/nvidia_calls.[ch]", "src/device/nvidia_dnn.[ch]"]
# what devices share that launch kernels for work items; a second one of them needs none of it again
ITEMS = ["src/dnn/simt*.[ch]", "src/dfp/items.c", "src/runtime/launched.c"]
SHARED = ["include/**/*.h", "src/**/*.[ch]", "src/**/*.def", "src/**/*.cl"]


def files(patterns: list[str]) -> list[Path]:
    return sorted(p for pattern in patterns for p in ROOT.glob(pattern))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def code(text: str) -> list[str]:
    """The lines of a file without comments."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    return [re.sub(r"//.*", "", line) for line in text.split("\n")]


def extent(text: list[str], i: int) -> int:
    """How many lines the row or hook has that begins with line i."""
    if re.match(r"\s*#\s*(if|elif)", text[i]):
        depth, n = 0, 1
        while i + n < len(text) and (depth or not re.match(r"\s*#\s*(elif|else|endif)", text[i + n])):
            depth += bool(re.match(r"\s*#\s*if", text[i + n])) - bool(re.match(r"\s*#\s*endif", text[i + n]))
            n += 1
        return n
    depth, n = 0, 0
    while i + n < len(text):
        line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'', "", text[i + n])
        depth += len(re.findall(r"[(\[{]", line)) - len(re.findall(r"[)\]}]", line))
        n += 1
        function = i + n < len(text) and text[i + n] == "{"
        if depth <= 0 and not function:
            break
    return n


def hooks(words: str, own: set[Path]) -> list[tuple[Path, int, int]]:
    """File, line and number of lines of each."""
    found = []
    others = {p for patterns, _ in DEVICES.values() for p in files(patterns)} | own | set(files(LIBRARIES))
    for path in files(SHARED):
        if path in others:
            continue
        text, i = code(path.read_text()), 0
        while i < len(text):
            n = extent(text, i) if re.search(words, text[i]) else 0
            if n:
                found.append((path, i + 1, n))
            i += max(n, 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the rows and hooks")
    verbose = parser.parse_args().verbose
    print(f"{'device':10}{'files':>8}{'lines':>8}{'rows and hooks':>16}{'together':>10}")
    for name, (patterns, words) in DEVICES.items():
        own = files(patterns)
        rows = hooks(words, set(own))
        in_files, in_rows = sum(len(lines(p)) for p in own), sum(n for _, _, n in rows)
        print(f"{name:10}{len(own):8}{in_files:8}{in_rows:16}{in_files + in_rows:10}")
        for path, line, n in rows if verbose else []:
            print(f"    {path.relative_to(ROOT)}:{line}: {n}: {lines(path)[line - 1].strip()[:90]}")
    items = files(ITEMS)
    shared = sum(len(lines(p)) for p in items)
    apart = sum(len(lines(p)) for p in files(LIBRARIES))
    print(
        f"shared by devices that launch kernels for work items: {len(items)} files, {shared} lines; "
        f"calls of makers' libraries: {apart} lines"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
