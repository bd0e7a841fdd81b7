"""Packages: the extension exports one function; a wheel works with every Python from 3.11 on and contains the command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import sol

ROOT = Path(__file__).resolve().parents[2]


def symbols(path: Path, *options: str) -> list[str]:
    printed = subprocess.run(["nm", "-D", *options, str(path)], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in printed.splitlines()]


def newest_glibc(path: Path) -> tuple[int, ...]:
    printed = subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", printed))


def test_the_extension_shows_one_function():
    assert symbols(Path(sol._core.__file__), "--defined-only") == ["PyInit__core"]


def test_versions_are_one():
    meson = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())
    assert meson and sol.__version__ == meson[1]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_made_wheels(architecture, tmp_path):
    """Tests the wheels in dist/, if `make wheel` made any."""
    made = list((ROOT / "dist").glob(f"sol-*_{architecture}.whl"))
    if not made:
        pytest.skip(f"dist/ has no wheel for {architecture}: make wheel")
    assert made[0].name == f"sol-{sol.__version__}-cp311-abi3-manylinux_2_28_{architecture}.whl"
    with zipfile.ZipFile(made[0]) as wheel:
        wheel.extractall(tmp_path)
        assert not [
            name for name in wheel.namelist() if ".libs/" in name
        ]  # no bundled libraries: everything is linked statically
    for program in (tmp_path / "sol/_core.abi3.so", next(tmp_path.glob("sol-*.data/scripts/sol"))):
        assert newest_glibc(program) <= (2, 28)
        needed = subprocess.run(["readelf", "-d", str(program)], capture_output=True, text=True, check=True).stdout
        libraries = set(re.findall(r"NEEDED.*\[(.*?)\.so", needed))
        assert libraries <= {"libc", "libm", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}


@pytest.mark.slow
def test_pip_install(tmp_path):
    """`pip install .` installs the package, the command, and the entry point of torch.compile."""
    source = tmp_path / "source"
    for name in ("include", "src", "cli", "python", "tools"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("*.abi3.so", "__pycache__", "*.egg-info")
        )
    for name in ("meson.build", "meson.options", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # meson and ninja
    subprocess.run([*pip, str(tmp_path / "site"), str(source)], check=True, env={**os.environ, "PATH": path})
    command = [str(tmp_path / "site/bin/sol"), "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"sol {sol.__version__}\n"
    assert (tmp_path / "site/sol/_core.abi3.so").exists()
    entries = next((tmp_path / "site").glob("sol-*.dist-info/entry_points.txt")).read_text()
    assert "sol = sol.pytorch.dynamo:backend" in entries
