"""Settings for tests of the TensorFlow frontend, which run in .venv-tensorflow (`make test-tensorflow`)."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from keras_settings import cache, fresh  # noqa: F401

collect_ignore_glob = [] if importlib.util.find_spec("tensorflow") else ["test_*.py"]  # TensorFlow is not in .venv
