"""Progress and the log: a bar on terminals and in notebooks, and nowhere else; log lines in order, or in `logging` on
request."""

import logging
import os
import pty
import re
import subprocess
import sys
import types

import pytest
import sol
import torch
from sol import _core, log, notebook

MODEL = """
from sol import _core
_core.config_set("autotune", "off")
graph = _core.Graph("small")
x = graph.input("x", "f32", (3, 40))
y, = graph.layer("Softmax", None, None, graph.layer("exp", None, None, (x,), {}), {"axis": 1})
graph.output("y", graph.layer("tanh", None, None, graph.layer("Sum", None, None, (y,), {"axes": [1]}), {})[0])
graph.compile()
"""


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setitem(sol.config, "cache::folder", str(tmp_path))
    monkeypatch.setitem(sol.config, "autotune", "off")


def environment(folder, **more):
    return {**os.environ, "SOL_CACHE": str(folder), "TERM": "xterm", "SOL_LOG": "INFO", **more}


def on_terminal(code, **env):
    """What a program writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env=env) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # Linux reports the closed other end like this
            pass
    os.close(ours)
    assert process.returncode == 0, text
    return text.decode()


def screen(text):
    """The lines that remain on the terminal, without erased ones."""
    return [re.split(r"\r\x1b\[K", line)[-1] for line in text.replace("\r\n", "\n").split("\n")]


def test_bar_on_a_terminal(tmp_path):
    """The bar is drawn, log lines do not mix with it, and it disappears at the end."""
    text = on_terminal(MODEL, **environment(tmp_path, SOL_LOG="DEBUG"))
    assert re.search(r"\r\x1b\[KCompiling  \[[#.]+\]  \d+ of \d+, \d+ s", text)
    lines = screen(text)
    assert lines[-1] == "" and len(lines) > 3
    assert all(re.match(r"\[(INFO|DEBUG) *\]\[", line) for line in lines[:-1]), lines


@pytest.mark.parametrize(("key", "term"), [("off", "xterm"), ("auto", "dumb")])
def test_no_bar_on_a_terminal(tmp_path, key, term):
    assert "Compiling" not in on_terminal(MODEL, **environment(tmp_path, SOL_PROGRESS=key, TERM=term))


@pytest.mark.parametrize(("key", "some"), [("auto", False), ("on", True)])
def test_bar_elsewhere(tmp_path, key, some):
    done = subprocess.run(
        [sys.executable, "-c", MODEL], env=environment(tmp_path, SOL_PROGRESS=key), capture_output=True
    )
    assert done.returncode == 0 and (b"Compiling" in done.stderr) is some, done.stderr


def test_long_work_is_cut_to_the_terminal(tmp_path):
    code = "from sol import _core; _core.progress('x' * 100, 3, 4); _core.progress('short', 0, 0); _core.progress(None, 0, 0)"
    lines = re.split(r"\r\x1b\[K", on_terminal(code, **environment(tmp_path)))
    assert [len(lines[1]), lines[2], lines[3]] == [79, "short  0 s", ""]


def test_callback(cold):
    seen = []
    _core.set_progress(lambda *row: seen.append(row))
    try:
        sol.optimize(torch.nn.Conv2d(3, 5, 3).eval(), torch.randn(1, 3, 9, 9))
        sol.config["progress"] = "off"
        sol.optimize(torch.nn.Conv2d(3, 6, 3).eval(), torch.randn(1, 3, 9, 9))
    finally:
        _core.set_progress(None)
        del sol.config["progress"]
    assert seen[0][:2] == ("Compiling", 0) and seen[-1] == (None, 0, 0) and seen.count((None, 0, 0)) == 1
    done = [row[1] for row in seen[:-1]]
    assert done == sorted(done) and done[-1] == seen[0][2]


def test_notebook(cold, monkeypatch):
    """A stand-in for IPython: output is updated in place and empty at the end."""
    shown = []

    class Handle:
        update = staticmethod(shown.append)

    def display(what, display_id):
        assert display_id
        shown.append(what)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML, ipython.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    try:
        notebook.begin()
        sol.optimize(torch.nn.Conv2d(3, 5, 3).eval(), torch.randn(1, 3, 9, 9))
        assert shown[0].startswith('Compiling <progress value="0" max="') and shown[-1] == ""
        count = len(shown)
        _core.set_progress(None)
        shell.kernel = None  # IPython on a terminal has no kernel
        notebook.begin()
        sol.optimize(torch.nn.Conv2d(3, 6, 3).eval(), torch.randn(1, 3, 9, 9))
        assert len(shown) == count
    finally:
        _core.set_progress(None)


def test_times_run_forwards(cold, capfd, monkeypatch):
    """Lines from Python and from C use the same clock."""
    monkeypatch.setitem(sol.config, "log::level", "DEBUG")
    sol.optimize(torch.nn.Conv2d(3, 5, 3).eval(), torch.randn(1, 3, 9, 9))
    rows = re.findall(r"^\[\w+ *\]\[ *([\d.]+)\]\[(\w+)\]", capfd.readouterr().err, re.MULTILINE)
    times = [float(t) for t, _ in rows]
    assert times == sorted(times) and {"pytorch", "core"} <= {module for _, module in rows}


def test_a_long_line_is_whole(capfd):
    log.warn("x" * 9000)
    assert "x" * 9000 + "\n" in capfd.readouterr().err


def test_logging(cold, capfd, caplog, monkeypatch):
    monkeypatch.setitem(sol.config, "log::level", "TRACE")
    monkeypatch.setitem(sol.config, "compiler::debug", "1")
    caplog.set_level(logging.DEBUG, logger="mine")
    log.to_logging("mine")
    try:
        model, x = sol.optimize(torch.nn.Conv2d(3, 5, 3).eval(), torch.randn(1, 3, 9, 9)), torch.randn(1, 3, 9, 9)
        model(x)
        at_debug = len(caplog.records)
        caplog.set_level(1, logger="mine")
        model(x)  # a line of TRACE for each step
    finally:
        log.to_logging(None)
    assert {"mine.core", "mine.pytorch"} <= {r.name for r in caplog.records}
    (line,) = (r for r in caplog.records if "Estimated Peak" in r.message and r.levelno == logging.INFO)
    assert line.message.startswith("Estimated") and line.filename == "Program"
    assert len(caplog.records) > at_debug and caplog.records[-1].levelno == 5
    assert not capfd.readouterr().err
    log.warn("here again")
    assert "here again" in capfd.readouterr().err
