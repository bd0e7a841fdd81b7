"""Settings for all Python tests: the cost model alone chooses kernels, so that tests do not tune, for an assumed
machine, so that the choice does not depend on how busy this one is."""

import os

os.environ.setdefault("SOL_AUTOTUNE", "off")
os.environ.setdefault("SOL_MACHINE", "assumed")
