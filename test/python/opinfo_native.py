"""The first samples of torch's own database of operators (OpInfo) on a device: tensors of torch.device("sol").

Each sample runs as a program would run it, one operator after the other, and its results are compared with the processor's,
in float64 where possible (opinfo.py). As a script it runs all operators on the device far and writes docs/operators-native.md:
`opinfo_native.py [NAME ..]`; with names it prints what it finds. Operators run in processes of their own, so that one that ends
its process is found, too.
"""

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sol
import torch
from opinfo import ANY_SIGN, NAMES, UNDEFINED, compare, described, samples
from torch.utils import _pytree as pytree

TYPES = {"float32": torch.float32, "int64": torch.int64}
FIRST = 2  # samples of each type
PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators-native.md"
HEAD = """# PyTorch operators on a device

`python test/python/opinfo_native.py` wrote this page. It calls the first {first} samples of each operator in torch's own OpInfo
database ({version}) with tensors of `torch.device("sol")`, in two types, on the device `far`, and compares the results with those of the
processor, in float64 where possible. Of {operators} operators, {works} work on the device, {falls} work, but PyTorch's processor
kernels run a part of their samples ([counted](devices.md)), and {rejected} are rejected for some samples. No result is wrong.

A cell is what the samples of a type do: *works* on the device, *falls back* to the processor (on the right: the operators that do), or
*rejected* with a message, where the processor accepts the sample. An optimized model uses other kernels: see
[PyTorch operators](operators-pytorch.md).

| operator | {types} | on the processor, or why |
|---|{lines}---|
"""


def moved(call):
    """The tensors of a sample on the device. Views of one tensor are copies of their own there."""
    return [t.clone().to("sol") for t in call.inputs]


def run(name, call):
    """("works" | "falls back" | "rejected" | "wrong", why) for a sample. None: PyTorch does not compute it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = pytree.tree_leaves(call(*(t.clone() for t in call.inputs)))
        except Exception:
            return None
        torch.sol.reset_fallbacks()
        try:
            call(*moved(call))  # a call that ran before runs in another way
            results = dict(enumerate(pytree.tree_leaves(call(*moved(call)))))
            got = {k: v.cpu() for k, v in results.items() if isinstance(v, torch.Tensor)}
        except Exception as e:
            return "rejected", " ".join(f"{type(e).__name__}: {e}".split())[:160]
        falls = sorted(torch.sol.fallbacks())
        wrong = compare(name, call, got, eager) if name not in UNDEFINED else None
    if wrong:
        return "wrong", f"{wrong} {described(call)}"
    return ("falls back", ", ".join(falls)) if falls else ("works", "")


def results_of(name):
    """{type: [(kind, why), ..]} of an operator."""
    found = {}
    for label, dtype in TYPES.items():
        tried = [run(name, call) for call in samples(name, dtype, FIRST)]
        found[label] = [t for t in tried if t is not None]
    return found


def serve():
    """Reads names, and writes results as lines of JSON."""
    import sol.native  # noqa: F401

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for line in sys.stdin:
        try:
            found = results_of(line.strip())
        except Exception as e:
            found = {"float32": [("wrong", f"{type(e).__name__}: {e}")]}
        out.write(json.dumps(found) + "\n")
        out.flush()


class Server:
    """A process that runs operators on a device, and is started again when one ends it."""

    def __init__(self):
        self.process = None

    def __call__(self, name):
        if self.process is None:
            env = {"SOL_DEVICE": "far", **os.environ, "SOL_CACHE": sol.config["cache::folder"]}
            command = ["timeout", "7200", sys.executable, __file__, "--serve"]
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        code, self.process = self.process.wait(), None
        return {"float32": [("ends", f"the process ends with {code}")]}

    def end(self):
        if self.process is not None:
            self.process.communicate()


def row(name, found):
    """A row of the table."""
    cells = []
    for label in TYPES:
        kinds = Counter(kind for kind, _ in found.get(label, []))
        cells.append(next(iter(kinds)) if len(kinds) == 1 else ", ".join(f"{n} {k}" for k, n in sorted(kinds.items())))
    whys = Counter(why for some in found.values() for kind, why in some if why)
    text = "; ".join(why[:120].replace("|", "/") for why, _ in whys.most_common(2))
    return f"| `{name}` | {' | '.join(cells)} | {text} |"


def page(found):
    """The text of the page, from results by operator."""
    kinds = {n: {kind for some in r.values() for kind, _ in some} for n, r in found.items()}
    kinds = {n: k for n, k in kinds.items() if k}
    head = HEAD.format(
        version=f"torch {torch.__version__.split('+')[0]}",
        first=FIRST,
        operators=len(kinds),
        works=sum(k == {"works"} for k in kinds.values()),
        falls=sum("falls back" in k and "rejected" not in k for k in kinds.values()),
        rejected=sum("rejected" in k for k in kinds.values()),
        types=" | ".join(TYPES),
        lines="---|" * len(TYPES),
    )
    return head + "\n".join(row(n, found[n]) for n in sorted(kinds)) + "\n"


def main():
    if "--serve" in sys.argv:
        return serve()
    names = sys.argv[1:] or sorted(n for n in NAMES if n not in ANY_SIGN)
    jobs = int(os.environ.get("SOL_OPINFO_JOBS", "2"))
    servers, found = [Server() for _ in range(jobs)], {}

    def work(k):
        for name in names[k::jobs]:
            found[name] = servers[k](name)
            for some in found[name].values():
                for kind, why in some:
                    if kind in ("wrong", "ends"):
                        print(f"{kind.upper()} {name}: {why}", flush=True)
            if sys.argv[1:]:
                print(row(name, found[name]), flush=True)
            if "SOL_OPINFO" in os.environ:  # for looking at single results
                with open(os.environ["SOL_OPINFO"], "a", encoding="utf-8") as f:
                    f.write(json.dumps([name, found[name]]) + "\n")
        servers[k].end()

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))
    bad = any(kind in ("wrong", "ends") for r in found.values() for some in r.values() for kind, _ in some)
    if not bad and not sys.argv[1:]:  # the page has no place for wrong results
        PAGE.write_text(page(found), encoding="utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
