"""`sol doctor`, `python -m sol`, `sol.config.print()`: what works here, what is missing, what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sol
import sol.__main__

SOL = Path(__file__).resolve().parents[2] / "build/cli/sol"


def doctor(
    tmp_path: Path, *, command: list[str] | None = None, **more: str
) -> tuple[int, dict[str, tuple[str, str, str]]]:
    """Returns the exit code, and for each row its state, the finding, and the advice."""
    environment = {**os.environ, "SOL_CACHE": str(tmp_path / "cache"), **more}
    done = subprocess.run(
        command or [str(SOL), "doctor"], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    rows: dict[str, tuple[str, str, str]] = {}
    for line in done.stdout.splitlines():
        row = re.match(r"(ok|missing|BROKEN) +(.*?)  +(.*)", line)
        advice = re.match(r" +-> (.*)", line)
        if row:
            last, rows[row[2]] = row[2], (row[1], row[3], "")
        elif advice:
            rows[last] = (*rows[last][:2], advice[1])
    return done.returncode, rows


def compiler(tmp_path: Path, text: str) -> str:
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_all_is_well(tmp_path):
    code, rows = doctor(tmp_path)
    assert code == 0
    assert {rows[what][0] for what in ("sol", "processor", "C compiler", "compiling", "cache", "a network")} == {"ok"}
    assert rows["cache"][1].startswith(str(tmp_path / "cache"))


@pytest.mark.skipif(sol.device.HOST != "x86", reason="instruction sets of x86")
def test_the_processor_is_known(tmp_path):
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        has = set(next(line for line in f if line.startswith("flags")).split())
    most = 64 if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= has else 32 if {"avx2", "fma"} <= has else 16
    assert f"vectors of {most} bytes" in doctor(tmp_path)[1]["processor"][1]


def test_without_a_compiler(tmp_path):
    code, rows = doctor(tmp_path, PATH="/nowhere")
    assert code == 4
    assert rows["C compiler"][0] == "BROKEN" and "apt install gcc" in rows["C compiler"][2]
    assert rows["compiling"][0] == rows["a network"][0] == "BROKEN"
    assert rows["cross compilers"][0] == rows["dot (Graphviz)"][0] == "missing"
    assert "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross" in rows["cross compilers"][2]
    assert (
        f"gcc-{'x86-64' if sol.device.HOST == 'x86' else 'aarch64'}-linux" not in rows["cross compilers"][2]
    )  # this machine


def test_what_is_in_the_cache_runs_without_a_compiler(tmp_path):
    assert doctor(tmp_path)[0] == 0
    code, rows = doctor(tmp_path, PATH="/nowhere")
    assert code == 4 and rows["a network"] == ("ok", "run from the cache; nothing new can be compiled", "")


@pytest.mark.parametrize(
    ("script", "row", "text", "advice"),
    [
        ('exec cc -nostdinc "$@"', "compiling", r"math\.h", "apt install libc6-dev"),
        ('[ "$1" = --version ] && exec cc "$@"; echo "no luck"; exit 1', "compiling", "no luck", "another one"),
        ("echo broken; exit 3", "C compiler", "--version fails: broken", "compiler::name"),
    ],
)
def test_a_compiler_that_does_not_do(tmp_path, script, row, text, advice):
    code, rows = doctor(tmp_path, SOL_COMPILER=compiler(tmp_path, script))
    assert code == 4
    assert rows[row][0] == "BROKEN" and re.search(text, rows[row][1]) and advice in rows[row][2]


def test_a_cache_that_others_can_write(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    code, rows = doctor(tmp_path)
    assert code == 0  # a temporary cache is used
    assert rows["cache"][0] == "missing" and "chmod 700" in rows["cache"][2]


def test_no_folder_for_the_secret(tmp_path):
    """Without this folder, nothing is stored."""
    (tmp_path / f"sol-state-{os.geteuid()}").touch()
    code, rows = doctor(tmp_path, XDG_STATE_HOME="/dev/null", TMPDIR=str(tmp_path))
    assert code == 0 and rows["a network"][0] == "ok"
    assert rows["cache"][0] == "missing" and "no folder for the secret" in rows["cache"][1]
    assert "XDG_STATE_HOME" in rows["cache"][2]


def mounted_noexec(folder: Path, inside: str) -> list[str]:
    """A command that runs another one in a private mount namespace in which the folder is mounted noexec."""
    command = ["unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o noexec tmpfs '{folder}' && {inside}"]
    try:
        possible = not subprocess.run([*command[:4], command[4].split(" && ")[0]], capture_output=True).returncode
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("needs a user namespace of its own that may mount (unshare -rm)")
    return command


def test_folders_mounted_noexec(tmp_path):
    """Code is mapped from memory, and from a file only with compiler::debug; then the message says what to do."""
    folder = tmp_path / "noexec"
    folder.mkdir()
    command = mounted_noexec(folder, f"'{SOL}' doctor")
    code, rows = doctor(tmp_path, command=command, SOL_CACHE=str(folder / "cache"), TMPDIR=str(folder))
    assert code == 0 and rows["compiling"][0] == "ok" and rows["a network"] == ("ok", "optimized and run", "")
    script = (
        "import sol, torch; sol.config['compiler::debug'] = 1; sol.optimize(torch.relu, torch.ones(3))(torch.ones(3))"
    )
    done = subprocess.run(
        mounted_noexec(folder, f'exec "{sys.executable}" -c "{script}"'),
        capture_output=True, text=True, env={**os.environ, "SOL_CACHE": str(folder / "cache")}, check=False,
    )  # fmt: skip
    assert "failed to map" in done.stderr and "SOL_CACHE, to a folder that is not mounted noexec" in done.stderr


def test_a_target_of_another_machine(tmp_path):
    code, rows = doctor(tmp_path, SOL_TARGET="neon" if sol.device.HOST == "x86" else "avx2")
    assert code == 4 and rows["target"][0] == "BROKEN" and "native" in rows["target"][2]


def test_from_python(tmp_path):
    code, rows = doctor(tmp_path, command=[sys.executable, "-m", "sol", "--config"])
    assert code == 0 and rows["a network"][0] == "ok"
    code, rows = doctor(tmp_path, command=[sys.executable, "-m", "sol"], SOL_COMPILER="/nowhere/cc")
    assert code == 4 and rows["C compiler"] == (
        "BROKEN",
        "/nowhere/cc: no such program",
        "set the key compiler::name (or SOL_COMPILER) to gcc or clang, or to auto",
    )


def test_versions_and_configuration(tmp_path):
    command = [sys.executable, "-m", "sol", "--config"]
    environment = {**os.environ, "SOL_CACHE": str(tmp_path), "SOL_AUTOTUNE": "off"}
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    for text in (
        f"sol  .*{sol.__version__}",
        r"pytorch: torch \d",
        r"onnx: onnx \d",
        r"numpy: numpy \d",
        rf"{sol.device.HOST}:0: ",
    ):
        assert re.search(text, printed), text
    assert re.search(r"^autotune +off", printed, re.M) and re.search(r"^solver +auto$", printed, re.M)


def test_config_print(capsys):
    before = sol.config["solver"]
    sol.config["solver"] = "nest"
    try:
        sol.config.print()
    finally:
        sol.config["solver"] = before
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == len(sol.config)
    assert re.search(r"^solver +nest \(changed\)$", printed, re.M)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["config"], 0, r"^autotune "),
        (["help"], 0, r"^Usage: sol COMMAND"),
        (["run", "--help"], 0, r"^Usage: sol run NET.onnx"),
        (["--version"], 0, rf"^sol {re.escape(sol.__version__)}$"),
        (["--help"], 0, r"python -m sol COMMAND"),
        (["info", "nowhere.onnx"], 4, r"nowhere\.onnx"),
        (["sing"], 2, r"sing"),
    ],
)
def test_commands_from_python(arguments, code, text):
    """`python -m sol COMMAND` is the command `sol`."""
    command = [sys.executable, "-m", "sol", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert re.search(text, done.stdout, re.M) and done.returncode == code, done


def test_from_python_without_the_command(monkeypatch, capsys):
    monkeypatch.setattr("sol.__main__._program", lambda: None)
    monkeypatch.setattr(sys, "argv", ["sol", "doctor"])
    assert sol.__main__.main() == 4 and "pip install ." in capsys.readouterr().err
