"""The time and memory for planning and printing are proportional to the size of the network; time is counted in instructions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parent.parent.parent / "build" / "test" / "bench-compile"
SIZES = 24, 72, 216


def instructions(shape, layers):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", PROGRAM, "--once", shape, str(layers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


SHAPES = ["permute", "split", "concat", "borders", "conv", "training"]


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind (apt-get install valgrind)")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_costs_the_same_in_a_large_network(shape):
    few, some, many = (instructions(shape, n) for n in SIZES)
    first, then = (some - few) / (SIZES[1] - SIZES[0]), (many - some) / (SIZES[2] - SIZES[1])
    assert then <= 1.3 * first  # quadratic time would give 3


@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_takes_at_most_100_kilobytes(shape):
    """The peak memory from the graph to the module's text. A layer of `training` is a convolution
    with its ReLU and the gradients of both."""
    done = subprocess.run([PROGRAM, shape, "-n", "200,600"], capture_output=True, text=True, check=True)
    few, many = (float(kib) for kib in re.findall(r"([\d.]+) KiB a layer", done.stdout))
    assert many < (110 if shape == "training" else 100)
    assert many < 1.3 * few
