"""ONNX's backend cases through ONNX Runtime with SOL's execution provider, compared with ONNX Runtime's own processor.

`python test/onnx/provider.py` runs all of them and prints how many nodes SOL takes, by operator; `--match TEXT` selects,
`--show` prints each node that ONNX Runtime keeps, `--networks resnet50` runs networks of the bench."""

import argparse
import collections
import dataclasses
import multiprocessing
import sys

import backend
import numpy as np
import onnxruntime as ort
import sol.onnx

import onnx

RECORD = "session.record_ep_graph_assignment_info"
OPTIONS = {"autotune": "off", "machine": "assumed", "threads": "2"}


def devices():
    """SOL's devices; the library is registered once in a process."""
    found = [d for d in ort.get_ep_devices() if d.ep_name == "SOL"]
    if not found:
        ort.register_execution_provider_library("SOL", sol.onnx.provider_path())
        found = [d for d in ort.get_ep_devices() if d.ep_name == "SOL"]
    return found


def session(model: bytes | str, severity: int = 3, **more: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = severity
    options.add_session_config_entry(RECORD, "1")
    options.add_provider_for_devices(devices(), {**OPTIONS, **more})
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)  # an error of SOL is one


def plain(model: bytes | str) -> ort.InferenceSession:
    """ONNX Runtime alone."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])


def taken(s: ort.InferenceSession) -> tuple[list[str], list[str]]:
    """The operators of the nodes that SOL and ONNX Runtime have."""
    ours, theirs = [], []
    for part in s.get_provider_graph_assignment_info():
        (ours if part.ep_name == "SOL" else theirs).extend(n.op_type for n in part.get_nodes())
    return ours, theirs


@dataclasses.dataclass
class Result:
    name: str
    state: str  # same, wrong, unknown (to ONNX Runtime)
    reason: str = ""
    ours: list = dataclasses.field(default_factory=list)
    theirs: list = dataclasses.field(default_factory=list)


def _feed(model: onnx.ModelProto, inputs: list) -> dict:
    weights = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in weights]
    feed = {}
    for name, value in zip(names, inputs, strict=False):
        if value is None:
            continue
        feed[name] = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return feed


def _differs(got, expected, case) -> str:
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return "another sequence"
        return next((p for g, e in zip(got, expected, strict=True) if (p := _differs(g, e, case))), "")
    if not isinstance(expected, np.ndarray) or expected.dtype.kind == "O":
        return "" if np.array_equal(got, expected) else "other values"
    return backend.compare(got, expected, case.rtol, case.atol)


def one(case: backend.Case) -> Result:
    model = case.model.SerializeToString()
    try:
        theirs = plain(model)
        expected = [theirs.run(None, _feed(case.model, inputs)) for inputs, _ in case.sets]
    except Exception as e:  # ONNX Runtime has no kernel, or no type: nothing to compare with
        return Result(case.name, "unknown", str(e).splitlines()[0])
    try:
        ours = session(model)
        result = Result(case.name, "same", "", *taken(ours))
        for (inputs, outputs), want in zip(case.sets, expected, strict=True):
            for i, (g, e) in enumerate(zip(ours.run(None, _feed(case.model, inputs)), want, strict=True)):
                problem = _differs(g, e, case)
                stated = outputs[i] if i < len(outputs) else None
                if problem and (not isinstance(stated, np.ndarray) or _differs(g, stated, case)):  # their error?
                    result.state, result.reason = "wrong", f"output {i}: {problem}"
        return result
    except Exception as e:
        return Result(case.name, "wrong", str(e)[:600])


def _worker(cases, first, pipe):
    for i in range(first, len(cases)):
        pipe.send((i, one(cases[i])))
    pipe.send(None)


def every(cases):
    """Yields the results; a child process runs the cases, so that a crash is a wrong result."""
    first = 0
    while first < len(cases):
        ours, pipe = multiprocessing.get_context("fork").Pipe(False)
        child = multiprocessing.get_context("fork").Process(target=_worker, args=(cases, first, pipe))
        child.start()
        pipe.close()
        try:
            while (message := ours.recv()) is not None:
                first = message[0] + 1
                yield message[1]
            first = len(cases)
        except EOFError:
            child.join()
            yield Result(cases[first].name, "wrong", f"crash (exit code {child.exitcode})")
            first += 1
        child.join()


def networks(names: list[str]) -> int:
    """Networks of the bench: nodes that SOL takes, and the largest difference in units of the largest result."""
    sys.path.insert(0, str(backend.sol_c.ROOT / "bench"))
    import networks as bench
    import systems

    bad = 0
    for name in names:
        path = str(systems.exported(name, 1))
        s, plain_s = session(path), plain(path)
        feed = {s.get_inputs()[0].name: bench.sample(name).numpy()}
        ours, theirs = taken(s)
        got, expected = s.run(None, feed)[0], plain_s.run(None, feed)[0]
        error = np.abs(got - expected).max() / np.abs(expected).max()
        print(
            f"{name}: SOL takes {len(ours)} of {len(ours) + len(theirs)} nodes {theirs or ''}; error {error:.1e}",
            flush=True,
        )
        bad += not error < 1e-4
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="")
    parser.add_argument("--every", type=int, default=1, help="only each nth case")
    parser.add_argument("--first", type=int, default=0, help="from this case on")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--networks", nargs="+", help="networks of the bench instead of cases: resnet50 mobilenet_v2")
    args = parser.parse_args()
    if args.networks:
        return networks(args.networks)
    count, ours, theirs, all_ours = collections.Counter(), collections.Counter(), collections.Counter(), 0
    for r in every(backend.collect(args.match)[args.first :: args.every]):
        count[r.state] += 1
        ours.update(r.ours)
        theirs.update(r.theirs)
        all_ours += r.state == "same" and not r.theirs
        if r.state == "wrong" or (args.show and r.theirs):
            print(f"{r.state} {r.name}: {r.reason} {r.theirs}", flush=True)
    print(f"{sum(count.values())} cases: {dict(count)}; SOL takes all nodes of {all_ours}")
    print(f"SOL takes {ours.total()} of {ours.total() + theirs.total()} nodes; ONNX Runtime keeps")
    for name, n in theirs.most_common():
        print(f"  {name}: {n} of {n + ours[name]}")
    return 1 if count["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
