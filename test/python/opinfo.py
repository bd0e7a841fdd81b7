"""Torch's own samples of every operator (OpInfo), run through the translation and compared with float64.

As a script it writes docs/operators-pytorch.md: what works, what is refused and why.
"""

import contextlib
import itertools
import sys
import warnings
from pathlib import Path

import sol
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch_help import PLUS, TIMES, error, interpret, to_double

DTYPES = (torch.float32, torch.int64, torch.bool)
# What cannot be compared: memory that nothing was written to, and orders that PyTorch leaves open.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
ANY_ORDER = {"topk", "sort", "argsort", "msort", "kthvalue", "median", "mode"}
NEEDS_GPU = ("jiterator", "cauchy")
# Errors may be larger where PyTorch computes in another way: op -> relative to float64.
LOOSE = {
    "logit": 1e-5,
    "polygamma": 1e-5,
    "nn.functional.local_response_norm": 1e-5,
}

NAMES = {
    o.name + (f".{o.variant_test_name}" if o.variant_test_name else ""): o
    for o in op_db
    if not o.name.startswith(NEEDS_GPU)
}


class Call(torch.nn.Module):
    """An operator with its arguments, whose tensors are inputs."""

    def __init__(self, op, sample):
        super().__init__()
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        fixed = [None if isinstance(v, torch.Tensor) else (v,) for v in leaves]
        inputs = tuple(v.detach() for v in leaves if isinstance(v, torch.Tensor))
        self.__dict__.update(op=op, spec=spec, fixed=fixed, inputs=inputs, training=False)

    def forward(self, *tensors):
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten([f[0] if f else next(given) for f in self.fixed], self.spec)
        return self.op(*args, **kwargs)


def samples(name, dtype, count):
    """Calls of an operator on samples of a type; [] if it has none."""
    info = NAMES[name]
    if dtype not in info.dtypes:
        return []
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            Call(info.op, s) for s in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), count)
        ]


def _exact(call, eager):
    """The results in float64; the eager ones where the operator does not take it."""
    if not any(t.dtype == torch.float32 for t in call.inputs):
        return eager
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
        return pytree.tree_leaves(call(*to_double([t.clone() for t in call.inputs])))
    return eager


def compare(name, call, got, eager, exact):
    """None, or what is wrong with the results {number: tensor}."""
    for k, g in got.items():
        e, x = eager[k], exact[k] if isinstance(exact[k], torch.Tensor) else eager[k]
        if (g.dtype, g.shape) != (e.dtype, e.shape):
            return f"{g.dtype}{list(g.shape)}, expected {e.dtype}{list(e.shape)}"
        if name.split(".")[0] in ANY_ORDER and not g.is_floating_point():
            continue
        with_nan = torch.equal(torch.isnan(x), torch.isnan(e)) and torch.equal(torch.isinf(x), torch.isinf(e))
        reference = x if x.shape == e.shape and with_nan else e
        try:
            ours, theirs = error(g, reference), error(e, reference)
        except AssertionError as problem:
            return str(problem) or "infinities differ"
        if ours > TIMES * theirs + LOOSE.get(name, PLUS):
            shapes = [tuple(t.shape) for t in call.inputs]
            return f"error {ours:.3g}, PyTorch's is {theirs:.3g}, for {shapes} {[f[0] for f in call.fixed if f]}"
    return None


def run(name, call, compute):
    """("ok" | "refused" | "wrong", why). `compute(call)` gives results by number."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = pytree.tree_leaves(call(*(t.clone() for t in call.inputs)))
        try:
            got = compute(call)
        except sol.UnsupportedError as e:
            return "refused", reason(str(e))
        if name.split(".")[0] in UNDEFINED:
            return "ok", ""
        wrong = compare(name, call, got, eager, _exact(call, eager))
    return ("wrong", wrong) if wrong else ("ok", "")


def interpreted(call):
    return interpret(call, call.inputs)


def compiled(call):
    optimized = sol.optimize(call, *call.inputs)
    return {k: v for k, v in enumerate(pytree.tree_leaves(optimized(*call.inputs))) if isinstance(v, torch.Tensor)}


def reason(text):
    """The last line of a refusal, without the place in this file."""
    return text.strip().split("\n")[-1].split(" (opinfo.py")[0].strip()


# -- docs/operators-pytorch.md

HEAD = """# PyTorch operators

Made by `python test/python/opinfo.py`: every operator of torch's own OpInfo database ({version}), run with its samples in
float32, int64 and bool through SOL's translation and interpreter and compared with PyTorch in float64. {ok} work with all
samples, {partly} with some, {refused} are refused.

Operators that the table does not have (`python/sol/pytorch/operators`) are taken apart by PyTorch's own decompositions. What
is refused is refused before anything is compiled, with its name and the line of the model. Random numbers, complex numbers,
sparse and quantised tensors, float16 and bfloat16, and results whose shape depends on data are refused for now.

| operator | samples | result |
|---|---|---|
"""


def table(count):
    """Rows of the table; prints what is wrong."""
    rows, numbers = [], {"ok": 0, "partly": 0, "refused": 0}
    for name in sorted(NAMES):
        results = []
        for dtype in DTYPES:
            try:
                calls = samples(name, dtype, count)
            except Exception as e:
                print(f"{name} {dtype}: no samples: {e}", file=sys.stderr)
                continue
            for call in calls:
                try:
                    results.append(run(name, call, interpreted))
                except Exception as e:
                    results.append(("refused", reason(f"{type(e).__name__}: {e}")))
        if not results:
            continue
        for kind, why in results:
            if kind == "wrong":
                print(f"WRONG {name}: {why}", file=sys.stderr)
        good = sum(kind == "ok" for kind, _ in results)
        kind = "ok" if good == len(results) else "partly" if good else "refused"
        numbers[kind] += 1
        whys = list(dict.fromkeys(why for k, why in results if k != "ok"))
        text = {"ok": "works", "partly": "works; refused: ", "refused": "refused: "}[kind] + "; ".join(
            w[:110] for w in whys[:2]
        )
        rows.append(f"| {name} | {good}/{len(results)} | {text.replace('|', '/')} |")
        print(f"{name}: {good}/{len(results)}", flush=True)
    return rows, numbers


def main():
    rows, numbers = table(10)
    path = Path(__file__).resolve().parents[2] / "docs" / "operators-pytorch.md"
    path.write_text(
        HEAD.format(version=f"torch {torch.__version__}", **numbers) + "\n".join(rows) + "\n", encoding="utf-8"
    )
    print(path, numbers)


if __name__ == "__main__":
    main()
