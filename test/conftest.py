"""What holds for all Python tests: networks are compiled by cost alone, so that tests take no longer than they must, and
by costs of an assumed machine, so that no kernel depends on how busy this one is."""

import os

os.environ.setdefault("SOL_AUTOTUNE", "off")
os.environ.setdefault("SOL_MACHINE", "assumed")
