"""A short run of the fuzz target; test/fuzz/README.md says how to run it for an hour."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.skipif(not shutil.which("clang"), reason="libFuzzer comes with clang")
def test_fuzz_for_a_moment():
    seconds = os.environ.get("SOL_FUZZ_SECONDS", "20")
    done = subprocess.run([ROOT / "test" / "fuzz" / "run.sh", seconds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
