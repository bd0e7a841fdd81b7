"""The README's Python code runs unchanged, block after block, and links between pages are valid."""

from __future__ import annotations

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
def test_links(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert ((ROOT / page).parent / link).exists(), link
