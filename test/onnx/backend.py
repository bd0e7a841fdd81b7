"""ONNX's own backend test cases: every one runs through SOL and passes, is rejected by name, or is wrong (a defect).

`python test/onnx/backend.py` runs all of them and writes docs/operators-onnx.md; `--interpret` uses the interpreter instead
of generated code (but for whole networks), `--match TEXT` selects, `--show` prints each result that is not a pass."""

import argparse
import collections
import dataclasses
import itertools
import multiprocessing
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import sol_c

import onnx
from onnx import numpy_helper

warnings.filterwarnings("ignore")
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


@dataclasses.dataclass
class Case:
    name: str
    kind: str
    operator: str
    model: onnx.ModelProto
    sets: list  # of (inputs, outputs), each a list of arrays
    rtol: float
    atol: float


@dataclasses.dataclass
class Result:
    case: Case
    state: str  # pass, fixed, rejected, wrong
    reason: str = ""


def _operator(model: onnx.ModelProto) -> str:
    nodes = [n.op_type for n in model.graph.node]
    return nodes[0] if len(set(nodes)) == 1 else "(several)"


def _tensors(folder: Path, what: str, infos) -> list:
    found = []
    for i, info in enumerate(infos):
        path = folder / f"{what}_{i}.pb"
        if not path.exists():
            break
        if info.type.WhichOneof("value") != "tensor_type":
            found.append(None)
            continue
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        found.append(numpy_helper.to_array(tensor))
    return found


def _stored() -> list[Case]:
    cases = []
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for folder in sorted((DATA / kind).glob("test_*")):
            model = onnx.load(folder / "model.onnx")
            sets = []
            for data in sorted(folder.glob("test_data_set_*")):
                inputs = _tensors(data, "input", model.graph.input)
                sets.append((inputs, _tensors(data, "output", model.graph.output)))
            cases.append(Case(folder.name, kind, _operator(model), model, sets, 1e-3, 1e-7))
    return cases


def _light() -> list[Case]:
    cases = []
    for path in sorted((DATA / "light").glob("*.onnx")):
        model = onnx.load(path)
        expected = onnx.TensorProto()
        expected.ParseFromString(path.with_name(path.stem + "_output_0.pb").read_bytes())
        weights = {t.name for t in model.graph.initializer}
        info = next(i for i in model.graph.input if i.name not in weights)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        size = int(np.prod(shape))
        given = (np.arange(size, dtype=np.float32) / size).reshape(shape)
        sets = [([given], [numpy_helper.to_array(expected)])]
        cases.append(Case("test_" + path.stem, "light", "(network)", model, sets, 2e-3, 1e-5))
    return cases


def _generated() -> list[Case]:
    from onnx.backend.test.case import node

    cases = []
    for c in node.collect_testcases():
        sets = [(list(i), list(o)) for i, o in c.data_sets]
        cases.append(Case(c.name, "node", _operator(c.model), c.model, sets, c.rtol, c.atol))
    return cases


def collect(match: str = "", networks: bool = True) -> list[Case]:
    found = {c.name + c.kind: c for c in _generated() + _stored() + (_light() if networks else [])}
    return [c for c in found.values() if match in c.name]


def compare(got: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    if got.dtype != expected.dtype:
        return f"type {got.dtype}, expected {expected.dtype}"
    if got.dtype.kind != "f":
        return "" if np.array_equal(got, expected) else f"{np.sum(got != expected)} of {got.size} elements differ"
    largest = np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    atol = max(atol, np.finfo(expected.dtype).eps * 16 * float(largest))  # sums that cancel
    close = np.isclose(got, expected, rtol, atol, equal_nan=True)
    if close.all():
        return ""
    with np.errstate(all="ignore"):
        worst = np.nanmax(np.abs(got.astype(float) - expected.astype(float)), initial=0)
    return f"{np.sum(~close)} of {got.size} elements differ, by up to {worst:.3g}"


def _named(case: Case, inputs: list) -> dict[str, np.ndarray]:
    weights = {t.name for t in case.model.graph.initializer}
    names = [i.name for i in case.model.graph.input if i.name not in weights]
    named = {}
    for name, value in zip(names, inputs, strict=False):
        if value is None or isinstance(value, list):
            continue
        a = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
        named[name] = a
    return named


ARGUMENT = "depends on the value of an input"


def _check(case: Case, how: str, fixed: bool) -> str:
    """Runs all data sets. Returns what is wrong, or "". `fixed`: values of inputs that shapes depend on are constants."""
    for inputs, outputs in case.sets:
        named = _named(case, inputs)
        dims = {}
        for info in case.model.graph.input:
            if info.name in named:
                for i, d in enumerate(info.type.tensor_type.shape.dim):
                    if not d.HasField("dim_value"):
                        dims[f"{info.name}.{i}"] = named[info.name].shape[i]
        model = sol_c.Model(case.model, dims, offered=named if fixed else None)
        got = getattr(model, how)(named)
        for g, e, info in zip(got, outputs, case.model.graph.output, strict=True):
            expected = numpy_helper.to_array(e) if isinstance(e, onnx.TensorProto) else np.asarray(e)
            if problem := compare(g, expected, case.rtol, case.atol):
                return f"{info.name}: {problem}"
    return ""


def one(case: Case, how: str = "run") -> Result:
    """Runs a case through SOL and compares. If a shape depends on an input, the values of the call are offered."""
    fixed = False
    while True:
        try:
            problem = _check(case, how, fixed)
            return Result(case, "wrong" if problem else "fixed" if fixed else "pass", problem)
        except sol_c.SolError as e:
            if e.status != sol_c.UNSUPPORTED:
                return Result(case, "wrong", f"error {e.status}: {e}")
            if fixed or ARGUMENT not in str(e):
                return Result(case, "rejected", str(e))
            fixed = True


def _worker(cases: list[Case], how: str, first: int, pipe) -> None:
    for i in range(first, len(cases)):
        r = one(cases[i], how)
        pipe.send((i, r.state, r.reason))
    pipe.send(None)


def every(cases: list[Case], how: str = "run"):
    """Yields the results one by one. A child process runs the cases, so a crash is a wrong result and does not end the
    run."""
    context, first = multiprocessing.get_context("fork"), 0
    while first < len(cases):
        ours, theirs = context.Pipe(False)
        child = context.Process(target=_worker, args=(cases, how, first, theirs))
        child.start()
        theirs.close()
        try:
            while (message := ours.recv()) is not None:
                first = message[0] + 1
                yield Result(cases[message[0]], *message[1:])
        except EOFError:
            child.join()
            yield Result(cases[first], "wrong", f"crash (exit code {child.exitcode})")
            first += 1
        child.join()


def _reason(text: str) -> str:
    """The reasons alone, without names, for a row of the table."""
    lines = [line.strip() for line in text.splitlines()[1:]]
    if not lines:
        return text.removeprefix("model: ")
    short = []
    for line in lines:
        line = re.sub(r" \((first: )?('|graph|[^()]*node \d).*$", "", line)
        what, reason = line.split(": ", 1)
        short.append(reason if what.startswith("in") else f"{re.sub(' .*', '', what)}: {reason}")
    return "; ".join(dict.fromkeys(short))


def report(results: list[Result], out) -> None:
    count = collections.Counter(r.state for r in results)
    print("# Operators of ONNX\n", file=out)
    print(
        f"`python test/onnx/backend.py` wrote this page from the {len(results)} backend test cases of onnx {onnx.__version__}.\n\n"
        f"{count['pass']} pass. {count['fixed']} (*fixed*) pass where shapes depend on values of inputs, which `sol.optimize` and "
        "`sol run` take from the call: one program serves all values that are sizes; others, such as axes, get one each "
        f"([onnx.md](onnx.md)). SOL rejects {count['rejected']} by name before it compiles anything. "
        f"{count['wrong']} are wrong.\n",
        file=out,
    )
    print("## Cases by operator\n", file=out)
    print("| operator | pass | fixed | rejected | wrong | reason |\n|-|-:|-:|-:|-:|-|", file=out)
    groups = collections.defaultdict(list)
    for r in results:
        groups[r.case.operator].append(r)
    for name in sorted(groups):
        states = collections.Counter(r.state for r in groups[name])
        why = collections.Counter(_reason(r.reason) for r in groups[name] if r.state == "rejected")
        text = "<br>".join(f"{k.replace('|', '/')} ({v})" for k, v in why.most_common())
        print(
            f"| {name} | {states['pass']} | {states['fixed']} | {states['rejected']} | {states['wrong']} | {text} |",
            file=out,
        )
    print("\n## Rows\n\n| operator | opsets |\n|-|-|", file=out)
    for domain, name, first, last in sorted(sol_c.supported()):
        print(f"| {domain + '.' if domain else ''}{name} | {first} to {last or 'the newest'} |", file=out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--match", default="")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--output", default=str(sol_c.ROOT / "docs" / "operators-onnx.md"))
    args = parser.parse_args()
    cases = collect(args.match)
    networks = [c for c in cases if c.kind == "light"]
    small = [c for c in cases if c.kind != "light"]
    results = []
    for r in itertools.chain(every(small, "interpret" if args.interpret else "run"), every(networks)):
        results.append(r)
        case = r.case
        if r.state == "wrong" or (args.show and r.state == "rejected"):
            print(f"{r.state:8} {case.kind} {case.name} ({case.operator}): {r.reason[:400]}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(results)}/{len(cases)}", end="", file=sys.stderr)
    count = collections.Counter(r.state for r in results)
    print(f"{len(results)} cases: {dict(count)}")
    if not args.match:
        with open(args.output, "w") as out:
            report(results, out)
    return 1 if count["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
