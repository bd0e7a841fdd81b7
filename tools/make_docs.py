#!/usr/bin/env python3
"""Writes the reference pages from the sources: the C interface from headers, the Python interface from docstrings, the
configuration keys, the layers.

--check writes nothing; the exit code says whether the pages are up to date (`make lint`).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

import docs_layers

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ["sol.h", "extend.h", "onnx.h", "deploy.h"]
PYTHON = ["sol", "sol.pytorch", "sol.onnx"]


def comment_text(comment: str) -> str:
    lines = [re.sub(r"^\s*(/\*|\*/|\*)? ?", "", line.rstrip().removesuffix("*/")) for line in comment.splitlines()]
    return "\n".join(line.rstrip() for line in lines).strip()


def header_page(name: str) -> str:
    """The page of a header: a heading for each `-- section` comment, and below it each declaration with its comment."""
    text = (ROOT / "include/sol" / name).read_text()
    intro = re.match(r"/\*.*?\*/", text, re.S)
    body = text[intro.end() :] if intro else text
    body = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", body, flags=re.S)
    rows = re.findall(r"^X\((\w+)", (ROOT / "include/sol/dtypes.def").read_text(), flags=re.M)
    body = body.replace('#include "sol/dtypes.def"\n#undef X', "    " + ", ".join(f"SOL_{row}" for row in rows) + ",")
    body = re.sub(r"^#(ifndef|define|endif).*\n?", "", body, flags=re.M)
    out = [f"## {name}", comment_text(intro.group(0)) if intro else ""]
    for block in re.split(r"\n\s*\n", body):
        block = block.strip("\n")
        if not block.strip() or block.startswith("#include"):
            continue
        section = re.match(r"/\* -- (.*?)\*/\n?", block, re.S)
        if section:
            title, _, rest = comment_text("/* " + section.group(1) + "*/").partition(". ")
            out += [f"### {title[0].upper()}{title[1:].rstrip('.')}", rest]
            block = block[section.end() :]
        lead = re.match(r"/\*.*?\*/\n", block, re.S)
        if lead and "\n/*" not in block[lead.end() :]:
            out.append(comment_text(lead.group(0)))
            block = block[lead.end() :]
        if block.strip():
            out.append(f"```c\n{block}\n```")
    return "\n\n".join(part for part in out if part)


def c_page() -> str:
    pages = [header_page(name) for name in HEADERS if (ROOT / "include/sol" / name).exists()]
    return (
        "\n\n".join(["# The C interface", "`make docs` makes this page from the headers in `include/sol/`.", *pages])
        + "\n"
    )


def signature(f: Callable[..., object]) -> str:
    """A signature as in the source: annotations are texts, printed without quotes."""
    return re.sub(r"(: |-> )'(.*?)'", r"\1\2", str(inspect.signature(f)))


def documentation(value: object) -> str:
    """A docstring as Markdown. `name   what it is` becomes a list item."""
    text = inspect.getdoc(value) or ""
    return re.sub(r"^(\w+) {2,}(\S.*)$", r"* `\1`: \2", text, flags=re.M)


def python_object(name: str, value: object) -> list[str]:
    doc = documentation(value)
    if inspect.isclass(value):
        out = [f"### class `{name}`", doc]
        for method, f in vars(value).items():
            if not method.startswith("_") and (inspect.isfunction(f) or isinstance(f, property)):
                call = signature(f) if inspect.isfunction(f) else ""
                out.append(
                    f"* `{method}{call}`: {(inspect.getdoc(f) or '').splitlines()[0] if inspect.getdoc(f) else ''}"
                )
        return out
    if callable(value) and not inspect.isfunction(value) and type(value).__module__.startswith("sol."):
        methods = [m for m in vars(type(value)) if inspect.ismethod(getattr(value, m))]
        parts = [(name if m == "__call__" else f"{name}.{m}", getattr(value, m)) for m in methods]
        return [text for part, f in parts for text in (f"### `{part}{signature(f)}`", documentation(f))]
    if callable(value):
        try:
            return [f"### `{name}{signature(value)}`", doc]
        except ValueError:
            return [f"### `{name}()`", doc]
    own = type(value).__doc__ if doc and type(value).__module__.startswith("sol") else None
    return [f"### `{name}`", own or ""]


def python_page() -> str:
    out = ["# The Python interface", "`make docs` makes this page from docstrings."]
    seen: set[int] = set()
    for name in PYTHON:
        module = importlib.import_module(name)
        out += [f"## {name}", documentation(module)]
        for item in getattr(module, "__all__", []):
            value = getattr(module, item)
            if inspect.ismodule(value):
                for inner, f in vars(value).items():
                    if (
                        inspect.isfunction(f)
                        and inner in getattr(value, "__all__", vars(value))
                        and f.__module__ == value.__name__
                        and not inner.startswith("_")
                    ):
                        out += python_object(f"{item}.{inner}", f) if id(f) not in seen else []
                        seen.add(id(f))
                continue
            if id(value) in seen:
                continue
            seen.add(id(value))
            out += python_object(item, value)
    return "\n\n".join(part for part in out if part) + "\n"


def configuration_page() -> str:
    out = [
        "# Configuration\n",
        "Set a key with `sol.config[key] = value` in Python, `sol_config_set` in C, or `--config key=value` on the command line.",
        "`make docs` makes this page from `src/base/config.def`.\n",
        "| key | default | values | variable | what |",
        "| --- | --- | --- | --- | --- |",
    ]
    row = re.compile(r'^X\("(.*?)", (NULL|"(.*?)"), "(.*?)", "(.*?)", "(.*?)"\)', re.M)
    for key, _, env, default, values, doc in row.findall((ROOT / "src/base/config.def").read_text()):
        accepted = {"": "text", "#": "a whole number"}.get(values, values.replace("|", ", "))
        out.append(f"| `{key}` | `{default}` | {accepted} | {f'`{env}`' if env else ''} | {doc} |")
    return "\n".join(out) + "\n"


def deploy_page() -> str:
    out = [
        "# Keys of a deployment\n",
        "Pass keys in `dargs` of `sol.deploy`, with `--darg KEY=VALUE` of `sol deploy`, or in `keys` of `sol_deploy`.",
        "[deploy.md](deploy.md) explains them.",
        "`make docs` makes this page from `src/deploy/keys.def`.\n",
        "| key | default | values | what |",
        "| --- | --- | --- | --- |",
    ]
    row = re.compile(r'^X\("(.*?)", \w+, "(.*?)", "(.*?)", "(.*?)"\)', re.M)
    for key, default, values, doc in row.findall((ROOT / "src/deploy/keys.def").read_text()):
        accepted = values.replace("|", ", ") or "text"
        out.append(f"| `{key}` | {f'`{default}`' if default else ''} | {accepted} | {doc} |")
    return "\n".join(out) + "\n"


PAGES = {
    "api-c.md": c_page,
    "api-python.md": python_page,
    "configuration.md": configuration_page,
    "deploy-keys.md": deploy_page,
    "layers.md": docs_layers.page,
}


def main() -> int:
    stale = 0
    (ROOT / "docs").mkdir(exist_ok=True)
    for name, make in PAGES.items():
        path, text = ROOT / "docs" / name, make()
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv:
            print(f"docs/{name} is not up to date: run `make docs`")
            stale += 1
        else:
            path.write_text(text)
            print(f"docs/{name}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
