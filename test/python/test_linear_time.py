"""Planning and printing take time in proportion to the network: counted in instructions, not measured."""

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


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind (apt-get install valgrind)")
@pytest.mark.parametrize("shape", ["permute", "split", "concat", "borders", "conv", "training"])
def test_a_layer_costs_the_same_in_a_large_network(shape):
    few, some, many = (instructions(shape, n) for n in SIZES)
    first, then = (some - few) / (SIZES[1] - SIZES[0]), (many - some) / (SIZES[2] - SIZES[1])
    assert then <= 1.3 * first  # in quadratic time: 3
