"""What holds for all Python tests: networks are compiled by cost alone, so that tests take no longer than they must."""

import os

os.environ.setdefault("SOL_AUTOTUNE", "off")
