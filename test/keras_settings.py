"""Fixtures of the tests with Keras: a cache of compiled kernels for the session, and the same state of Keras in each test. The conftest.py
of their folders import them."""

import os
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled kernels stay for the session; with SOL_TEST_CACHE they stay between sessions."""
    import sol

    kept = os.environ.get("SOL_TEST_CACHE")
    os.environ["XDG_STATE_HOME"] = f"{kept}-state" if kept else str(tmp_path_factory.mktemp("state"))
    sol.config["compiler::verify"] = "1"
    sol.config["cache::folder"] = kept or str(tmp_path_factory.mktemp("cache"))


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
