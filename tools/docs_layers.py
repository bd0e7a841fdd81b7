"""Writes docs/layers.md from layers.def and math.def: every layer with its signature, attributes and formula."""

from __future__ import annotations

import re
from pathlib import Path

LAYERS = Path(__file__).resolve().parent.parent / "src/layers"
HEAD = """# The layers

`make docs` makes this page from `src/layers/layers.def` and `src/hlir/math.def`. `sol_graph_layer`, the
[text form](text-form.md) of graphs and all frontends use these layers.

* **Signature**: `x w b? -> y` lists inputs and outputs in order. `?` marks an optional one, `*` any number of them.
* **Attributes**: `s=1` is optional with default 1, `axis:int` is required. `int`, `real` and `text` are single values. `ints` and
  `reals` are a list with one value for each dimension, or one value for all. An attribute whose default is one number also
  accepts a list. Axes count from the front, negative axes from the back.
* Formulas are in [the notation](notation.md). Layers without a formula here generate it for their shapes and attributes;
  `sol-opt --loops` shows it. *Opaque* layers are C functions.
* SOL rejects a layer by name if an attribute is unknown, a shape does not fit, or a type is not supported.
"""


def calls(text: str, names: str) -> list[tuple[str, list[str]]]:
    """Macro calls at the start of a line, with their arguments as text; and `/* -- title` comments as ("", [title])."""
    found = []
    for m in re.finditer(rf"^(?:/\* -- ((?:.|\n)*?)\*/|({names})\()", text, re.M):
        if m.group(1):
            found.append(("", [" ".join(re.sub(r"\n \*", " ", m.group(1)).split())]))
            continue
        depth, quoted, args, at = 1, False, [""], m.end()
        while depth:
            c = text[at]
            if c == "\\" and quoted:
                args[-1] += text[at : at + 2]
                at += 2
                continue
            quoted ^= c == '"'
            if not quoted:
                depth += (c in "([{") - (c in ")]}")
            if c == "," and depth == 1 and not quoted:
                args.append("")
            elif depth:
                args[-1] += c
            at += 1
        found.append((m.group(2), [a.strip() for a in args]))
    return found


def string(argument: str) -> str:
    """The value of adjacent C string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', argument)).replace('\\"', '"')


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def title(text: str) -> list[str]:
    """Turns `-- pooling: x is ..` into a heading and a sentence."""
    name, _, rest = text.partition(": ")
    return [
        f"\n## {name[0].upper()}{name[1:].rstrip('.')}\n",
        *([f"{rest[0].upper()}{rest[1:].rstrip('.')}.\n"] if rest else []),
    ]


def layer_sections() -> list[str]:
    out: list[str] = []
    rows: list[str] = []
    formulas: list[str] = []

    def close() -> None:
        if rows:
            out.extend(["| layer | signature | attributes | what |", "| --- | --- | --- | --- |", *rows])
        if formulas:
            out.extend(["\n```", *formulas, "```"])
        rows.clear()
        formulas.clear()

    for kind, args in calls((LAYERS / "layers.def").read_text(), "ROW|BUILT|OPAQUE"):
        if not kind:
            close()
            out += title(args[0])
            continue
        signature, _, what = string(args[-1]).partition(": ")
        name, attributes = args[0], string(args[2])
        opaque = " *(opaque)*" if kind == "OPAQUE" else ""
        rows.append(f"| `{name}` | `{signature}` | {f'`{attributes}`' if attributes else ''} | {cell(what)}{opaque} |")
        if kind == "ROW":
            body = string(args[3]).split("|", 3)[3].strip()
            formulas.append(f"{name:14} " + ("\n" + 15 * " ").join(s.strip() for s in body.split(";")))
    close()
    return out


def math_sections() -> list[str]:
    out = [
        "\n# Element-wise functions\n",
        "Inputs are broadcast as NumPy does and have one type (`where`: the last two).",
    ]
    open_table = False
    for kind, args in calls((LAYERS.parent / "hlir" / "math.def").read_text(), "P|C"):
        if not kind:
            out += title(args[0])
            open_table = False
            continue
        if not open_table:
            out += ["| function | inputs | result | what |", "| --- | --- | --- | --- |"]
            open_table = True
        result = {"x": "type of x", "y": "type of y"}.get(string(args[2]), string(args[2]))
        out.append(f"| `{args[0]}` | {' '.join('xyz'[: int(args[1])])} | {result} | {cell(string(args[-1]))} |")
    return out


def page() -> str:
    return HEAD + "\n".join(layer_sections() + math_sections()) + "\n"
