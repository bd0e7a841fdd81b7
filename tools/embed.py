#!/usr/bin/env python3
"""Writes text files as a table of C strings, by name: `embed.py NAME OUTPUT INPUT..`. Run by builds of folders of src."""

import sys
from pathlib import Path


def literal(text: str) -> str:
    """A text as C strings, one for each line."""
    lines = (line.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?") for line in text.split("\n"))
    return '\\n"\n    "'.join(lines)


def main() -> None:
    rows = []
    for path in map(Path, sys.argv[3:]):
        name = path.name.removesuffix(".in")
        rows.append(f'    {{"{name}", "{literal(path.read_text())}"}},\n')
    table = "const struct {\n    const char *name, *text;\n} " + sys.argv[1] + "[] = {\n"
    Path(sys.argv[2]).write_text("/* Made by tools/embed.py. */\n" + table + "".join(rows) + "    {0, 0},\n};\n")


if __name__ == "__main__":
    main()
