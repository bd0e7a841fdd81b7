"""A short run of the fuzz target; test/fuzz/README.md says how to run it for an hour."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def has_fuzzer() -> bool:
    """Whether clang can link a fuzz target; libFuzzer is a separate package."""
    target = b"int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size) { return data && size > 9; }"
    command = ["clang", "-fsanitize=fuzzer,address,undefined", "-x", "c", "-", "-o", "/dev/null"]
    return bool(shutil.which("clang")) and not subprocess.run(command, input=target, capture_output=True).returncode


@pytest.mark.skipif(not has_fuzzer(), reason="no clang that links libFuzzer (apt install clang libclang-rt-dev)")
def test_fuzz_for_a_moment():
    seconds = os.environ.get("SOL_FUZZ_SECONDS", "20")
    done = subprocess.run([ROOT / "test" / "fuzz" / "run.sh", seconds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
