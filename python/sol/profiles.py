"""Profiles: where the time of a network goes, kernel by kernel."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Kernel:
    """A kernel of a network: the layers that it computes, and what it takes: the median of the runs, in microseconds."""

    layers: str
    solver: str
    where: str  # the place of the first layer in the model's source; "": not known
    backward: bool
    us: float
    least_us: float
    share: float  # of the time of all kernels
    flops: float  # operations of the layers as they are written: Winograd needs fewer
    bytes: float  # that the layers read and write
    of_peak: float  # operations, as a share of what the machine can do (sol.machine)
    of_rate: float  # bytes, as a share of the rate at which it reads `level`
    level: str  # the nearest that holds all the bytes: "L2", "L3" or "mem"

    @property
    def gflops(self) -> float:
        """GFLOP/s."""
        return self.flops / max(self.us, 1e-3) / 1e3

    @property
    def gbps(self) -> float:
        """GB/s."""
        return self.bytes / max(self.us, 1e-3) / 1e3


class Profile:
    """What `sol.profile` found: `print` shows a table, `kernels` are its rows in the order in which they run."""

    def __init__(self, name: str, net: _core.Net, call_us: float) -> None:
        rows = net.profile()
        total = sum(row[7] for row in rows) or 1.0
        self.name = name
        self.runs = min((row[4] for row in rows), default=0)
        self.call_us = call_us  # the median of whole calls, with what measuring costs
        self.kernels = [
            Kernel(
                label,
                solver,
                where,
                backward,
                median / 1e3,
                least / 1e3,
                median / total,
                flops,
                moved,
                peak,
                rate,
                level,
            )
            for label, solver, where, backward, _, flops, moved, median, least, peak, rate, level in rows
        ]
        self._text = net.profile_text()

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<sol.Profile of {self.name}: {len(self.kernels)} kernels, {self.us / 1e3:.3f} ms, {self.runs} runs>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    @property
    def us(self) -> float:
        """The time of all kernels, in microseconds."""
        return sum(k.us for k in self.kernels)

    def rows(self) -> list[dict[str, Any]]:
        """The kernels as dicts, what takes longest first: for a data frame, or for json."""
        found = [{**asdict(k), "gflops": k.gflops, "gbps": k.gbps} for k in self.kernels]
        return sorted(found, key=lambda row: -row["us"])

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the kernels one behind the other, each as long as its median, for chrome://tracing and ui.perfetto.dev."""
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"SOL: {self.name}"}}
        ]
        at = 0.0
        for k in self.kernels:
            args = {"solver": k.solver, "where": k.where, "share": round(k.share, 4), "GFLOP/s": round(k.gflops, 1),
                    "GB/s": round(k.gbps, 1), "of peak": round(k.of_peak, 3),
                    f"of {k.level}'s rate": round(k.of_rate, 3)}  # fmt: skip
            events.append({"ph": "X", "pid": 1, "tid": 1, "cat": "backward" if k.backward else "forward",
                           "name": k.layers, "ts": round(at, 3), "dur": round(k.us, 3), "args": args})  # fmt: skip
            at += k.us
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, f)


@dataclass(frozen=True)
class Machine:
    """What this machine can do, all its threads together."""

    source: str  # "measured", "assumed", or "given" by sol.config["machine"]
    threads: int
    clock: float  # GHz
    fma: float  # vectors that a core multiplies and adds in a cycle
    gflops: float  # GFLOP/s, of multiply-adds in float32
    l2_gbps: float  # GB/s that are read
    l3_gbps: float
    memory_gbps: float


def machine() -> Machine:
    """What this machine can do: measured once, in some milliseconds, and kept in the cache."""
    return Machine(*_core.machine())


@contextlib.contextmanager
def _measuring() -> Iterator[None]:
    before = _core.config_get("profile")
    _core.config_set("profile", "1")
    try:
        yield
    finally:
        _core.config_set("profile", before)
        _core.progress(None, 0, 0)


def _runs(name: str, net: _core.Net, call: Callable[[], Any], runs: int) -> Profile:
    """The profile of a network that was called before."""
    call()
    times = []
    with _measuring():
        net.profile_clear()
        for i in range(runs):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e6)
            _core.progress("Profiling", i + 1, runs)
        return Profile(name, net, statistics.median(times))


def profile(model: Any, *inputs: Any, runs: int = 30, **kwargs: Any) -> Profile:
    """Calls an optimized model many times and says what each kernel took: the median of the runs.

    model   what sol.optimize made; of PyTorch or ONNX. Anything else is optimized for the occasion
    inputs  what it is called with, as are kwargs
    runs    how many calls are measured, 64 at most

    In train mode a run is forward and backward, of the sum of all outputs: gradients are not added to anything, and
    buffers (the statistics of batch-norm) are put back. In eval mode it is a call without gradients.
    """
    if not 1 <= runs <= 64:
        raise _core.InvalidError(f"sol.profile: runs: expected a number from 1 to 64, got {runs!r}")
    from .onnx import Network

    if isinstance(model, str | os.PathLike):
        from . import onnx

        model = onnx.load(os.fspath(model))
    if isinstance(model, Network):
        model(*inputs, **kwargs)
        net = model.latest()
        assert net is not None
        return _runs(os.path.basename(model.path), net, lambda: model(*inputs, **kwargs), runs)
    if "torch" in sys.modules and callable(model):
        from .pytorch import profiling

        return profiling.profile_module(model, inputs, kwargs, lambda name, net, call: _runs(name, net, call, runs))
    raise _core.InvalidError(
        f"sol.profile: expected a model, an optimized one or the path of an ONNX file, got {type(model)}"
    )
