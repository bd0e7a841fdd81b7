"""Tests of the JAX frontend run in an environment of their own (`make test-jax`), not with the others."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("jax") and importlib.util.find_spec("optax") else ["test_*.py"]
