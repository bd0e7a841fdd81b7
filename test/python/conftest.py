"""Settings for all Python tests: a separate cache, verified plans, torchvision with a CPU build of torch."""

import os

import pytest
import sol
import torch


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled kernels stay for the session, whose processes (pytest-xdist) share them; with SOL_TEST_CACHE they stay
    between sessions, as does the secret beside them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    kept = os.environ.get("SOL_TEST_CACHE", str(folder / "cache"))
    os.environ["XDG_STATE_HOME"] = f"{kept}-state"
    sol.config["compiler::verify"] = "1"
    sol.config["cache::folder"] = kept


@pytest.fixture(scope="session")
def torchvision():
    """torchvision's wheel imports if these two operators are defined, which they are as long as the library is there."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield pytest.importorskip("torchvision")


@pytest.fixture(autouse=True)
def fresh_seeds():
    torch.manual_seed(0)
    yield
    sol.set_seed(None)
