"""Models of Keras on PyTorch and JAX, each in a process of its own, because Keras has one backend for each process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NETWORKS = (
    "own",
    "sizes",
    "transformer",
    *(pytest.param(n, marks=pytest.mark.slow) for n in ("cnn", "lstm", "mobilenet")),
)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_on(backend, network, tmp_path):
    """Results, losses, weights and statistics are Keras's, also after set_weights and with frozen layers."""
    environment = {"SOL_TEST_CACHE": str(tmp_path), **os.environ, "KERAS_BACKEND": backend}
    script = Path(__file__).with_name("keras_on.py")
    done = subprocess.run([sys.executable, script, network], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
