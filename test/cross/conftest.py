"""Settings for tests of models of one framework in another. They need all frameworks: .venv-tensorflow (`make test-tensorflow`)."""

import importlib.util
import os

import pytest

FRAMEWORKS = ("torch", "tensorflow", "jax", "onnx")
collect_ignore_glob = [] if all(map(importlib.util.find_spec, FRAMEWORKS)) else ["test_*.py"]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled kernels stay for the session; with SOL_TEST_CACHE they stay between sessions."""
    import sol

    kept = os.environ.get("SOL_TEST_CACHE")
    os.environ["XDG_STATE_HOME"] = f"{kept}-state" if kept else str(tmp_path_factory.mktemp("state"))
    sol.config["compiler::verify"] = "1"
    sol.config["cache::folder"] = kept or str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def seeds():
    """The same numbers in every test."""
    import keras
    import torch

    torch.manual_seed(0)
    keras.utils.set_random_seed(0)
    yield
    keras.backend.clear_session()
