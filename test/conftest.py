"""Settings for all Python tests: the cost model alone chooses kernels, so that tests do not tune, for an assumed
machine, so that the choice does not depend on how busy this one is. Networks run on the device that SOL_DEVICE selects."""

import os

import pytest

os.environ.setdefault("SOL_AUTOTUNE", "off")
os.environ.setdefault("SOL_MACHINE", "assumed")
# Several processes run tests, each with a thread for every core. Threads of OpenMP that wait must sleep: by default they spin, which
# takes the cores from the other processes and most of the time of some tests. It counts where it is set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(autouse=True)
def device(request, monkeypatch):
    """What a test selects ends with it. Tests of what only the processor has (marker `processor`) run on it."""
    import sol  # reads these variables

    before = sol.config["device"]
    if request.node.get_closest_marker("processor"):
        monkeypatch.setenv("SOL_DEVICE", "auto")
        sol.config["device"] = "auto"
    yield
    sol.config["device"] = before
