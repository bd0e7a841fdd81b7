"""Settings for tests of models of one framework in another. They need all frameworks: .venv-tensorflow (`make test-tensorflow`)."""

import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from keras_settings import cache, fresh  # noqa: F401

FRAMEWORKS = ("torch", "tensorflow", "jax", "onnx")
collect_ignore_glob = [] if all(map(importlib.util.find_spec, FRAMEWORKS)) else ["test_*.py"]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
