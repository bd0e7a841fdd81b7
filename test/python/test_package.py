"""Packages: the extension exports one function; a wheel works with every Python from 3.11 on and contains the command."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import sol
from sol import supported

ROOT = Path(__file__).resolve().parents[2]


def symbols(path: Path, *options: str) -> list[str]:
    printed = subprocess.run(["nm", "-D", *options, str(path)], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in printed.splitlines()]


def newest_glibc(path: Path) -> tuple[int, ...]:
    printed = subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", printed))


def test_the_extension_shows_what_python_and_tensorflow_call():
    assert sorted(symbols(Path(sol._core.__file__), "--defined-only")) == ["PyInit__core", "SE_InitPlugin"]


def test_versions_are_one():
    meson = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())
    assert meson and sol.__version__ == meson[1]


def test_versions_of_other_packages_are_those_of_the_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    stated = {}
    for package, least in (re.match(r"(\w+)>=(.*)", r).groups() for rows in extras.values() for r in rows):
        major, minor = map(int, least.split(",")[0].split("."))
        later = "" if package in supported.LATER else f",<{major}.{minor + 1}"
        assert least == f"{major}.{minor}{later}"
        stated[package] = major, minor
    assert stated == supported.TESTED


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("torch", "2.12.1+cpu", "SOL: expected torch 2.13 or later, got torch 2.12.1+cpu; pip install 'sol[torch]'"),
        ("jax", "0.11.0", "SOL: expected jax 0.10, got jax 0.11.0; pip install 'sol[torch]'"),
        ("torch", "2.13.0a0+gitabc", None),
        ("torch", "3.0", None),
    ],
)
def test_other_versions(package, version, message, monkeypatch):
    monkeypatch.setattr(supported, "_installed", lambda name: version)
    with pytest.raises(sol.UnsupportedError, match=re.escape(message)) if message else contextlib.nullcontext():
        supported.check("torch", package)


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
