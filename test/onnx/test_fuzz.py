"""The fuzz target of the ONNX reader on changed models; test/fuzz/README.md says how to run it for an hour with libFuzzer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
INSTRUMENTED = ROOT / "build-asan" / "test" / "fuzz" / "onnx_mutate"  # of `make test-asan`
PLAIN = ROOT / "build" / "test" / "fuzz" / "onnx_mutate"


def has_fuzzer() -> bool:
    """Whether clang can link a fuzz target; libFuzzer is a separate package."""
    target = b"int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size) { return data && size > 9; }"
    command = ["clang", "-fsanitize=fuzzer,address,undefined", "-x", "c", "-", "-o", "/dev/null"]
    return bool(shutil.which("clang")) and not subprocess.run(command, input=target, capture_output=True).returncode


def test_changed_models(tmp_path):
    """No input crashes: with AddressSanitizer where that build is there, as in `make test`, which makes it first."""
    program = INSTRUMENTED if INSTRUMENTED.exists() else PLAIN
    subprocess.run([sys.executable, ROOT / "test" / "fuzz" / "make_corpus.py", tmp_path / "seeds"], check=True)
    env = {
        **os.environ,
        "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    command = [program, "30000", tmp_path / "last.onnx", tmp_path / "seeds", ROOT / "test" / "fuzz" / "found"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.slow  # it builds all of libsol again
@pytest.mark.skipif(not has_fuzzer(), reason="no clang that links libFuzzer (apt install clang libclang-rt-dev)")
def test_fuzz_for_a_moment():
    seconds = os.environ.get("SOL_FUZZ_SECONDS", "20")
    done = subprocess.run([ROOT / "test" / "fuzz" / "run.sh", seconds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
