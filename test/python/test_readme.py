"""The README's Python code runs unchanged, block after block; other pages import what they use; links between pages are valid."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sol

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]


def test_python_of_the_readme(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(blocks) == 4  # inference, training, ONNX, deployment
    environment = {**os.environ, "SOL_AUTOTUNE": "off", "SOL_LOG": "WARN", "SOL_CACHE": sol.config["cache::folder"]}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(blocks)],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    difference = re.search(r"tensor\((\S+)\)", done.stdout)
    assert difference and float(difference[1]) < 1e-5
    assert {p.name for p in (tmp_path / "library").iterdir()} >= {"libnet.so", "libnet.h"}


@pytest.mark.parametrize("page", PAGES)
def test_python_imports_what_it_uses(page):
    modules, known = {"sol", "torch", "torchvision", "transformers", "nn", "F", "np", "numpy", "onnx"}, set()
    for block in re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S):
        nodes = list(ast.walk(ast.parse(block)))
        imports = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
        known |= {(a.asname or a.name).split(".")[0] for a in imports}
        used = {n.value.id for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
        assert (used & modules) <= known, block


@pytest.mark.parametrize("page", PAGES)
def test_links(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert ((ROOT / page).parent / link).exists(), link
