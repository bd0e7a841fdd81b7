"""One system and one network in a process of its own: prepares, then measures a round for each line it is sent.

Talks JSON lines: first {"first_s", "prepare_s", "base_mib"} or {"error"}; to each number of seconds, {"ms": [...]};
at the end of its input, {"peak_mib"}.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("system")
    p.add_argument("network")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--folder", type=Path, required=True)
    p.add_argument("--output", type=Path, required=True)
    a = p.parse_args()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a system prints is not an answer

    def reply(**values) -> None:
        print(json.dumps(values), file=replies, flush=True)

    import numpy as np
    import torch
    from networks import build, example
    from systems import SYSTEMS

    torch.set_num_threads(a.threads)
    model, x = build(a.network), example(a.network, a.batch)
    base = peak_mib()
    try:
        start = time.perf_counter()
        run = SYSTEMS[a.system][0](model, x, a.folder, a.threads)
        prepared = time.perf_counter()
        y = run()
        first = time.perf_counter()
    except Exception as e:
        reply(error=f"{type(e).__name__}: {e}".splitlines()[0][:300])
        return
    np.save(a.output, np.asarray(y))
    reply(prepare_s=prepared - start, first_s=first - start, base_mib=base)
    for line in sys.stdin:
        seconds, times = float(line), []
        run()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - start))
        reply(ms=times)
    reply(peak_mib=peak_mib())


if __name__ == "__main__":
    main()
