"""Torch's own samples of every operator (OpInfo), run by SOL and compared with PyTorch and with float64.

Either translated and run by the interpreter, or compiled, many samples together. As a script it runs all of them and writes
docs/operators-pytorch.md: what works, what is rejected and why. `opinfo.py NAME ..` runs some and prints what is wrong,
`opinfo.py --compiled ..` compiles them, `opinfo.py --renew NAME ..` runs some and renews their rows of the page.
"""

import contextlib
import itertools
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import sol
import torch
from sol.pytorch.export import export
from sol.pytorch.translate import Translator
from sol.pytorch.values import Given
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch_help import DOUBLE, PLUS, TIMES, error, interpret, to_double

DTYPES = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool, "uint8": torch.uint8}
ALL = 1 << 30
BATCH = 24  # samples that are compiled together
MINUTE = 60  # seconds for each operator and type of the table, since some have over a thousand samples
BIG = 1 << 16  # elements; larger samples are compiled, because the interpreter is slow
# What cannot be compared: uninitialized memory, random numbers (test_chance.py), and orders that PyTorch does not
# specify.
UNDEFINED = set("empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_".split())
CHANCE = set(
    "bernoulli cauchy exponential geometric log_normal multinomial normal rand_like randint randint_like randn randn_like".split()
)
CHANCE |= {
    "uniform",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
}
CHANCE |= {"nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.scaled_dot_product_attention"}
CHANCE |= {"nn.functional.multi_head_attention_forward", "pca_lowrank", "svd_lowrank"}
ANY_ORDER = {"topk", "sort", "argsort", "msort", "kthvalue", "median", "mode", "nanmedian"}
# Signs of vectors are arbitrary: OpInfo's own function of the results removes them.
ANY_SIGN = {"linalg.eigh", "linalg.svd", "svd", "pca_lowrank", "svd_lowrank"}
NEEDS_GPU = ("jiterator",)
# Larger errors are allowed where PyTorch uses another method: op -> relative to float64.
LOOSE = {
    "logit": 1e-5,
    "polygamma": 1e-5,
    "nn.functional.local_response_norm": 1e-5,
}

LAST_DIGIT = 2.0**-24

NAMES = {
    o.name + (f".{o.variant_test_name}" if o.variant_test_name else ""): o
    for o in op_db
    if not o.name.startswith(NEEDS_GPU)
}


class Call(torch.nn.Module):
    """An operator with its arguments, whose tensors are inputs."""

    def __init__(self, op, sample, process=None):
        super().__init__()
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        fixed = [None if isinstance(v, torch.Tensor) else (v,) for v in leaves]
        inputs = tuple(v.detach() for v in leaves if isinstance(v, torch.Tensor))
        self.__dict__.update(op=op, spec=spec, fixed=fixed, inputs=inputs, process=process, training=False)

    def forward(self, *tensors):
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten([f[0] if f else next(given) for f in self.fixed], self.spec)
        with mock.patch("torch.manual_seed"):  # some of OpInfo's own functions seed, which is not the operator's work
            results = self.op(*args, **kwargs)
        return self.process(results) if self.process else results

    def by_chance(self, name):
        """Whether the results are random."""
        name = name.split(".")[0] if name.split(".")[0] != "nn" else ".".join(name.split(".")[:3])
        if name not in CHANCE:
            return False
        eager = []
        for seed in range(3):
            torch.manual_seed(seed)
            eager.append(pytree.tree_leaves(self(*(t.clone() for t in self.inputs))))
        return any(not same(eager[0], e) for e in eager)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, torch.Tensor))


class Calls(torch.nn.Module):
    """Several calls, one after the other."""

    def __init__(self, calls):
        super().__init__()
        self.__dict__.update(calls=calls, inputs=tuple(t for c in calls for t in c.inputs), training=False)

    def forward(self, *tensors):
        given = iter(tensors)
        return [c(*itertools.islice(given, len(c.inputs))) for c in self.calls]


def samples(name, dtype, count=ALL):
    """Calls of an operator with samples of a type; [] if there are none."""
    info = NAMES[name]
    if dtype not in info.dtypes:
        return []
    torch.manual_seed(0)
    made = []
    with warnings.catch_warnings(), contextlib.suppress(NotImplementedError):
        warnings.simplefilter("ignore")
        for s in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), count):
            made.append(Call(info.op, s, s.output_process_fn_grad if name in ANY_SIGN else None))
    return made


# -- comparing


def _exact(call, eager, digit=0.0):
    """The results in float64, or the eager ones if the operator does not support it. `digit`: relative change of the
    inputs."""
    if not any(isinstance(e, torch.Tensor) and e.dtype in DOUBLE for e in eager):
        return eager
    some = any(t.dtype in DOUBLE for t in call.inputs)
    inputs = [t.clone() for t in call.inputs]
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, IndexError):
        inputs = to_double(inputs) if some else [t.double() for t in inputs]
        if digit:
            chance = torch.Generator().manual_seed(0)
            signs = [torch.randint(0, 2, t.shape, generator=chance) * 2.0 - 1 for t in inputs]
            inputs = [
                t * (1 + digit * s) if t.dtype in DOUBLE.values() else t for t, s in zip(inputs, signs, strict=True)
            ]
        return pytree.tree_leaves(call(*inputs))
    return eager


def _far(name, got, eager, exact):
    """How far a result is from PyTorch's; None: near enough."""
    problem = None
    for reference in (exact, eager):
        if not isinstance(reference, torch.Tensor) or reference.shape != eager.shape:
            continue
        try:
            ours, theirs = error(got, reference), error(eager, reference)
        except AssertionError as e:
            problem = problem or str(e) or "infinities differ"
            continue
        if ours <= TIMES * theirs + LOOSE.get(name, PLUS):
            return None
        problem = f"error {ours:.3g}, PyTorch's is {theirs:.3g}"
    return problem


def compare(name, call, got, eager):
    """What is wrong with the results {number: tensor}; None: nothing."""
    exact, chance = _exact(call, eager), call.by_chance(name)
    for k, g in got.items():
        e = eager[k]
        if (g.dtype, g.shape) != (e.dtype, e.shape):
            return f"{g.dtype}{list(g.shape)}, expected {e.dtype}{list(e.shape)}"
        if chance or name in UNDEFINED or (name.split(".")[0] in ANY_ORDER and not g.is_floating_point()):
            continue
        problem = _far(name, g, e, exact[k])
        if problem and not (g.dtype in DOUBLE and _cancels(g, exact[k], _exact(call, eager, LAST_DIGIT)[k])):
            return problem
    return None


def _cancels(got, exact, shaken):
    """Whether a change of the inputs in the last digit changes the result by more than its error. Sums that cancel have
    no other measure, because PyTorch's own result may be exact by luck."""
    with contextlib.suppress(AssertionError):
        return error(got, exact) <= TIMES * error(shaken, exact)
    return False


def described(call):
    return f"for {[tuple(t.shape) for t in call.inputs]} {[f[0] for f in call.fixed if f]}"[:200]


def run(name, call, compute):
    """("ok" | "rejected" | "wrong", why). `compute(call)` gives results by number."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = pytree.tree_leaves(call(*(t.clone() for t in call.inputs)))
        except Exception:
            return "ok", ""  # PyTorch does not compute this sample
        try:
            wrong = compare(name, call, compute(call), eager)
        except sol.UnsupportedError as e:
            return "rejected", reason(str(e))
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"
    return ("wrong", f"{wrong} {described(call)}") if wrong else ("ok", "")


def interpreted(call):
    if max((t.numel() for t in call.inputs), default=0) > BIG:
        return compiled(call)
    return interpret(call, call.inputs)


def _tensors(result):
    return {k: v for k, v in enumerate(pytree.tree_leaves(result)) if isinstance(v, torch.Tensor)}


def compiled(call):
    return _tensors(sol.optimize(call, *call.inputs)(*(t.clone() for t in call.inputs)))


def _translated(call):
    """Translates only, to raise the errors of translation."""
    Translator(
        export(call, call.inputs, {}, given=Given(call.inputs, {})), "Call", list(call.inputs), {}, frozenset()
    ).run()
    return {}


def _batched(calls):
    """The results of several calls as one network; None: something goes wrong."""
    batch = Calls(calls)
    try:
        results = sol.optimize(batch, *batch.inputs)(*(t.clone() for t in batch.inputs))
    except Exception:
        return None
    return [_tensors(r) for r in results]


def run_all(name, calls):
    """Like `run` for each call, with few compilations."""
    found = []
    for at in range(0, len(calls), BATCH):
        some = calls[at : at + BATCH]
        results = _batched(some)
        if results is None:
            verdicts = [run(name, c, _translated) for c in some]
            fine = [c for c, v in zip(some, verdicts, strict=True) if v[0] != "rejected"]
            again = _batched(fine) if fine else []
            computed = iter(again or [None] * len(fine))
            results = [None if v[0] == "rejected" else next(computed) for v in verdicts]
        else:
            verdicts = [("ok", "")] * len(some)
        for call, verdict, result in zip(some, verdicts, results, strict=True):
            if verdict[0] == "rejected":
                found.append(verdict)
            else:
                found.append(run(name, call, compiled if result is None else lambda _, r=result: r))
    return found


def reason(text):
    """The last line of an error, without locations."""
    return re.sub(r" \([\w.]+\.py:\d+\)", "", text.strip().split("\n")[-1]).strip()


# -- docs/operators-pytorch.md

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators-pytorch.md"
HEAD = """# PyTorch operators

`python test/python/opinfo.py` wrote this page from torch's own OpInfo database ({version}). SOL translates every sample of every
operator in four types (or as many samples as a minute allows) and runs them in its interpreter. The results are compared
with PyTorch's, in float64 where possible. Of {samples} samples {good} work. SOL rejects the others by name, with the line of the
model, before it compiles anything. No sample is wrong. Of {operators} operators, {works} work with all samples and {partly} with some.
`make test` compiles and runs the first samples of each operator, `make test-all` all samples.

A cell is the number of samples that work. In *n of m*, SOL rejects the other samples for the reasons on the right. An operator
without an entry in SOL's table (`python/sol/pytorch/operators`) may still work through PyTorch's decompositions. Complex tensors
are supported as pairs of real tensors: the table lists operators that create or take them, and
`test/python/test_complex.py` tests operators with complex operands. SOL always rejects float16 and bfloat16, sparse and quantized
tensors. Sizes may depend on [values of the arguments](pytorch.md#values-that-forward-reads). Random numbers have the same
distributions as PyTorch's (`test/python/test_chance.py`), but other values.

| operator | {types} | rejected |
|---|{lines}---|
"""


def results_of(name, how=None):
    """{type: [(kind, why), ..]} of an operator."""
    torch.set_num_threads(1)
    calls = {t: samples(name, dtype) for t, dtype in DTYPES.items()}
    if how == "--compiled":
        return {t: run_all(name, c) for t, c in calls.items()}
    return {t: list(_within(MINUTE, (run(name, call, interpreted) for call in c))) for t, c in calls.items()}


def _within(seconds, results):
    """The results that are ready in time."""
    start = time.monotonic()
    for result in results:
        yield result
        if time.monotonic() - start > seconds:
            return


def row(name, results):
    """A row of the table."""
    cells = []
    for found in results.values():
        good = sum(kind == "ok" for kind, _ in found)
        cells.append("" if not found else str(good) if good == len(found) else f"{good} of {len(found)}")
    whys = Counter(why for found in results.values() for kind, why in found if kind == "rejected")
    text = "; ".join(why[:120].replace("|", "/") for why, _ in whys.most_common(2))
    return f"| `{name}` | {' | '.join(cells)} | {text} |"


def counts(line):
    """(samples that work, samples) of a row of the table."""
    cells = [c.split(" of ") for c in line.split(" | ")[1 : 1 + len(DTYPES)] if c.strip()]
    return sum(int(c[0]) for c in cells), sum(int(c[-1]) for c in cells)


def page(rows):
    """The text of the page, from its rows by operator."""
    of = {name: counts(line) for name, line in rows.items()}
    of = {name: (good, n) for name, (good, n) in of.items() if n}
    works = sum(good == n for good, n in of.values())
    head = HEAD.format(
        version=f"torch {torch.__version__.split('+')[0]}",
        samples=sum(n for _, n in of.values()),
        good=sum(good for good, _ in of.values()),
        operators=len(of),
        works=works,
        partly=sum(good > 0 for good, _ in of.values()) - works,
        types=" | ".join(DTYPES),
        lines="---|" * len(DTYPES),
    )
    return head + "\n".join(rows[n] for n in sorted(of)) + "\n"


def page_rows():
    """The current rows of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def main():
    option = sys.argv[1] if sys.argv[1:] and sys.argv[1].startswith("--") else None
    how, some = [option if option == "--compiled" else None], sys.argv[2:] if option else sys.argv[1:]
    todo, known = some or sorted(NAMES), {}
    with ProcessPoolExecutor(int(os.environ.get("SOL_OPINFO_JOBS", "2"))) as pool:
        for name, results in zip(todo, pool.map(results_of, todo, how * len(todo)), strict=True):
            known[name] = results
            verdicts = [v for found in results.values() for v in found]
            for why in {why for kind, why in verdicts if kind == "wrong"}:
                print(f"WRONG {name}: {why}", flush=True)
            print(f"{name}: {sum(kind == 'ok' for kind, _ in verdicts)} of {len(verdicts)}", flush=True)
            if "SOL_OPINFO" in os.environ:  # for looking at single results
                with open(os.environ["SOL_OPINFO"], "a", encoding="utf-8") as f:
                    f.write(json.dumps([name, results]) + "\n")
    wrong = any(kind == "wrong" for r in known.values() for found in r.values() for kind, _ in found)
    rows = {name: row(name, results) for name, results in known.items()}
    if not wrong and (option == "--renew" or (not some and not option)):  # the page has no place for wrong results
        PAGE.write_text(page((page_rows() if some else {}) | rows), encoding="utf-8")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
