#!/usr/bin/env python3
"""Checks that the table (meson.build) of each folder lists its source files, and that each row has a file.

Only the table in src/print/target.c tells differences between devices, so no other file may contain a device's name,
except the file of that device itself (src/device/NAME.c).
--fix rewrites the lists from the contents of the folders. Run by `make lint`.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def listing(folder: Path, pattern: str, prefix: str = "") -> list[str]:
    return sorted(prefix + p.name for p in folder.glob(pattern) if not p.name.endswith(".pb-c.c"))


OTHERS = {"ort": "ort_sources = files("}  # folders of a library of their own


def tables() -> list[tuple[Path, str, list[str], str]]:
    """(meson.build, the text in front of a list, what the list should hold, the bracket that closes it)"""
    found = [
        (f, OTHERS.get(f.parent.name, "sol_sources += files("), listing(f.parent, "*.c"), ")")
        for f in sorted(ROOT.glob("src/*/meson.build"))
    ]
    python = ROOT / "python/meson.build"
    package = ROOT / "python/sol"
    found.append((python, "core_sources = files(", listing(package, "*.c", "sol/"), ")"))
    compiled = {
        p for p in package.glob("pytorch/native/*") if p.suffix in (".cpp", ".h", ".hpp")
    }  # at the user's machine
    files = [
        str(p.relative_to(python.parent))
        for p in package.rglob("*")
        if p.suffix in (".py", ".pyi", ".typed") or p in compiled
    ]
    found.append((python, "package = files(", sorted(files), ")"))
    tests = sorted(n.removesuffix("_test.c") for n in listing(ROOT / "test", "*_test.c"))
    found.append((ROOT / "test/meson.build", "unit_tests = [", tests, "]"))
    return found


DEVICES = ROOT / "src/print/target.c"


def device_names() -> int:
    """Reports names of devices in string literals outside of the table, since these would be compared with a device's
    name."""
    names = re.findall(r"static const struct device \w+ = \{\s*\.name = (\"\w+\")", DEVICES.read_text())
    bad = 0 if names else 1
    if bad:
        print(f"{DEVICES.relative_to(ROOT)}: found no device")
    for path in sorted(p for f in ("src", "cli", "plugins", "include") for p in (ROOT / f).rglob("*.[chd]*")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in names:
                if path != DEVICES and path.stem != name.strip('"') and name in re.sub(r"/\*.*?\*/", "", line):
                    print(f"{path.relative_to(ROOT)}:{number}: {name} is a device: ask its row in src/print/target.c")
                    bad += 1
    return bad


def main() -> int:
    fix, bad = "--fix" in sys.argv, device_names()
    for build, head, wanted, closing in tables():
        text = build.read_text()
        start = text.find(head)
        if start < 0:
            print(f"{build.relative_to(ROOT)}: there is no list '{head}'")
            bad += 1
            continue
        start += len(head)
        end = text.index(closing, start)
        listed = re.findall(r"'([^']+)'", text[start:end])
        if sorted(listed) == wanted:
            continue
        if fix:
            indent = re.search(r"[^\n]*$", text[: start - len(head)]).group(0)  # type: ignore[union-attr]
            blank = indent if not indent.strip() else ""
            rows = "".join(f"\n{blank}  '{name}'," for name in wanted)
            build.write_text(f"{text[:start]}{rows}\n{blank}{text[end:]}")
            print(f"{build.relative_to(ROOT)}: rewrote {head}")
            continue
        bad += 1
        for name in sorted(set(wanted) - set(listed)):
            print(f"{build.relative_to(ROOT)}: '{name}' has no row in {head}")
        for name in sorted(set(listed) - set(wanted)):
            print(f"{build.relative_to(ROOT)}: the row '{name}' has no file in {head}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
