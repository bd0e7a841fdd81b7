"""Fixtures of the tests with Keras: a cache of compiled kernels for the session, and the same state of Keras in each test. The conftest.py
of their folders import them."""

import os
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled kernels stay for the session, whose processes (pytest-xdist) share them; with SOL_TEST_CACHE they stay
    between sessions."""
    import sol

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    kept = os.environ.get("SOL_TEST_CACHE", str(folder / "cache"))
    os.environ["XDG_STATE_HOME"] = f"{kept}-state"
    sol.config["compiler::verify"] = "1"
    sol.config["cache::folder"] = kept


@pytest.fixture(autouse=True)
def fresh():
    """The same random numbers in every test, and float32 afterwards."""
    import keras

    keras.utils.set_random_seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    yield
    keras.config.set_floatx("float32")
    keras.backend.clear_session()
