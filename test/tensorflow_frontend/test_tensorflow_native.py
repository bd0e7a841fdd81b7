"""SOL's devices inside TensorFlow, on the device far: x86 code behind memory that only the device accesses, so a kernel of the processor
that touches it ends the process. native_cases.py has the programs; the table of operators makes docs/operators-tensorflow-native.md."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "operators-tensorflow-native.md"
FAST = ("devices", "copies", "arithmetic", "variables", "missing", "functions", "memory", "late", "fit_mlp")
SLOW = ("fit_cnn", "fit_eagerly", "fit_sgd", "embedding", "optimized")


def run(*cases, options="far.devices=2,far.memory=64MB"):
    """What each of the cases did, in a process."""
    import sol

    env = {**os.environ, "SOL_DEVICE": "far", "SOL_DEVICE_OPTIONS": options, "SOL_CACHE": sol.config["cache::folder"]}
    done = subprocess.run(
        [sys.executable, str(HERE / "native_cases.py"), *cases], env=env, capture_output=True, text=True, cwd=HERE
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    found += [
        {"case": c, "error": f"the process ended with {done.returncode}: {done.stderr[-3000:]}"}
        for c in cases[len(found) :]
    ]
    return {f["case"]: f for f in found}


@functools.cache
def sample():
    return run(*FAST)


@pytest.mark.parametrize("case", FAST)
def test_sample(case):
    found = sample()[case]
    assert not found["error"], found["error"]


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW)
def test_training(case):
    found = run(case)[case]
    assert not found["error"], found["error"]


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 20, 41])
def test_failure(at):
    """An operation of the device that fails."""
    found = run("failing", options=f"far.fail_at={at}")["failing"]
    assert not found["error"], found["error"]


@pytest.mark.slow
def test_page():
    """The page is what the operators do; SOL_UPDATE=1 writes it."""
    from sol.tensorflow.operators import ROWS

    found = run("operators")["operators"]
    assert not found["error"], found["error"]
    said = {
        "works": "works",
        "processor": "has no kernel: the processor, by soft placement",
        "rejected": "rejected with a message",
    }
    done = found["result"]
    wrong = [text for text in done.values() if text not in said]
    assert not wrong, "\n".join(wrong)
    rows = [f"| `{n}` | {said[done[n]]} |" for n in sorted(set(done) & set(ROWS))]
    count = sum(done[n] == "works" for n in done)
    text = (
        "# Operators of TensorFlow on a device\n\nMade by `test/tensorflow_frontend/test_tensorflow_native.py`, which calls each operator of SOL's table by "
        "itself on tensors of `tf.device(\"SOL:0\")`,\non the device `far`, without soft placement, and compares the results with those of the "
        f"processor. {count} of {len(done)} work. All other\noperators of TensorFlow have no kernel: soft placement, TensorFlow's default, runs "
        "them on the processor. int32 is computed on the\nhost, as TensorFlow does it for every device. An optimized model uses other kernels: "
        "see [operators of TensorFlow](operators-tensorflow.md).\n\n| operator | |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    )  # fmt: skip
    if os.environ.get("SOL_UPDATE"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
