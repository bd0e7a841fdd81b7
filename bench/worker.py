"""One system and one network in a process of its own. Talks with bench.py by lines of JSON: says when it is ready, then
for each line it reads runs for that many seconds and answers with the times of its calls."""

from __future__ import annotations

import json
import os
import resource
import sys
import time


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    system, network, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a system prints does not get between
    import torch

    torch.set_num_threads(threads)
    import systems

    imported = peak_mib()
    try:
        start = time.perf_counter()
        run = systems.SYSTEMS[system](network, batch, threads)
        run()
        first = time.perf_counter() - start
    except Exception as error:  # a peer that cannot is reported, not fatal
        text = str(error).strip().splitlines()
        print(json.dumps({"error": f"{type(error).__name__}: {text[0] if text else ''}"}), file=answers, flush=True)
        return
    print(json.dumps({"first": first, "memory": peak_mib() - imported}), file=answers, flush=True)
    for line in sys.stdin:
        seconds, times = float(line), []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        print(json.dumps({"times": times, "memory": peak_mib() - imported}), file=answers, flush=True)


if __name__ == "__main__":
    main()
