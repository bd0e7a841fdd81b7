"""The processor is a device like others, but its calls go through none of the code for devices with memory of their own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sol

ROOT = Path(sol.__file__).parents[2]
CALLS = 100
PROGRAM = r"""
#include <sol/sol.h>
#include <valgrind/callgrind.h>
#include <stdio.h>
static const char text[] = "input %0:f32[1 64] \"x\"\nparam %1:f32[64 64] \"w\"\n%2 = Linear(%0, %1, -)\n%3 = relu(%2)\noutput %3 \"y\"\n";
static float w[64 * 64], x[64], y[64];
int main(void)
{
    struct sol_ctx *ctx;
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *p;
    const void *in[] = {x};
    void *out[] = {y};
    if (sol_ctx_create(NULL, &ctx)) return 2;
    if (sol_config_set(ctx, "target", "x86-64-v3") || sol_config_set(ctx, "device", "auto") ||
        sol_graph_parse(ctx, text, &g) || sol_compile(ctx, g, &net) || sol_params_create(net, &p) ||
        sol_params_set(p, 0, w) || sol_net_run(net, p, in, out, 1) || sol_net_run(net, p, in, out, 1)) {
        fprintf(stderr, "%s\n", sol_error(ctx));
        return 1;
    }
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = 0; i < CALLS; i++) sol_net_run(net, p, in, out, 1);
    CALLGRIND_STOP_INSTRUMENTATION;
    sol_params_destroy(p);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    sol_ctx_destroy(ctx);
}
"""


@pytest.mark.processor
@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed (Debian: apt install valgrind)")
def test_a_warm_call_runs_no_code_of_devices(tmp_path):
    """Counted by callgrind: a product of 64 x 64 with a ReLU took 2,700 instructions a call, 1,040 of them in the kernel (gcc 12, x86-64-v3)."""
    source, program, counts = tmp_path / "call.c", tmp_path / "call", tmp_path / "counts"
    source.write_text(PROGRAM)
    build = ROOT / "build"
    flags = [f"-DCALLS={CALLS}", f"-I{ROOT}/include", f"-L{build}", f"-Wl,-rpath,{build}", "-lsol"]
    subprocess.run(["cc", "-O1", source, "-o", program, *flags], check=True)
    call = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}", program]
    done = subprocess.run(
        call, capture_output=True, text=True, env={"SOL_CACHE": sol.config["cache::folder"], "PATH": "/usr/bin:/bin"}
    )
    assert not done.returncode, done.stderr
    text = counts.read_text()
    assert "src/runtime/run.c" in text  # names of files are there
    assert "src/device/" not in text
    total = int(re.findall(r"^totals: (\d+)", text, re.M)[0])
    assert 0 < total < CALLS * 4000
