"""Profiles: the time of each kernel of a network."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from . import _core, frameworks, programs
from .parsed import Call


@dataclass(frozen=True)
class Kernel:
    """A kernel of a network: its layers and its median time in microseconds."""

    layers: str
    solver: str
    where: str  # location of the first layer in the model's source; "": unknown
    backward: bool
    us: float
    least_us: float
    share: float  # share of the time of all kernels
    flops: float  # operations of the layers as defined; Winograd needs fewer
    bytes: float  # that the layers read and write
    of_peak: float  # share of the machine's peak arithmetic (sol.machine)
    of_rate: float  # share of the bandwidth of `level`
    level: str  # the nearest memory level that holds all the data: "L2", "L3" or "mem"

    @property
    def gflops(self) -> float:
        """GFLOP/s."""
        return self.flops / max(self.us, 1e-3) / 1e3

    @property
    def gbps(self) -> float:
        """GB/s."""
        return self.bytes / max(self.us, 1e-3) / 1e3


class Profile:
    """The result of `sol.profile`. `print` shows it as a table; `kernels` has its rows in execution order."""

    def __init__(self, net: _core.Net, call_us: float, name: str = "") -> None:
        rows = net.profile()
        total = sum(row[7] for row in rows) or 1.0
        self._text = net.profile_text()
        self.name = name or self._text.partition(": ")[0]  # of the network
        self.runs = min((row[4] for row in rows), default=0)
        self.call_us = call_us  # the median of whole calls, including the cost of measuring
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

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        time = f"{self.us:.2f} us" if self.us < 1e3 else f"{self.us / 1e3:.3f} ms"
        return f"<sol.Profile of {self.name}: kernels: {len(self.kernels)}, {time}, runs: {self.runs}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    @property
    def us(self) -> float:
        """The total time of all kernels, in microseconds."""
        return sum(k.us for k in self.kernels)

    def rows(self) -> list[dict[str, Any]]:
        """Returns the kernels as dicts, slowest first, for a data frame or for json."""
        found = [{**asdict(k), "gflops": k.gflops, "gbps": k.gbps} for k in self.kernels]
        return sorted(found, key=lambda row: -row["us"])

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for chrome://tracing and ui.perfetto.dev: the kernels in sequence, each with its median time."""
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
    """The limits of this machine, for all its threads together."""

    source: str  # "measured", "assumed", or "given" by sol.config["machine"]
    threads: int
    clock: float  # GHz
    fma: float  # vector multiply-adds a cycle and core
    gflops: float  # GFLOP/s of multiply-adds in float32
    l2_gbps: float  # GB/s of reading
    l3_gbps: float
    memory_gbps: float


def machine() -> Machine:
    """Returns the limits of this machine. SOL measures them once, in about 50 ms, and caches them."""
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
    """Profiles a network that was called before."""
    times = []
    with _measuring():
        net.profile_clear()
        for i in range(runs):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e6)
            _core.progress("Profiling", i + 1, runs)
        return Profile(net, statistics.median(times), name)


def profile(model: Any, *inputs: Any, runs: int = 30, **kwargs: Any) -> Profile:
    """Calls an optimized model many times and returns the median time of each kernel.

    model   an optimized model of any framework; any other model is optimized first
    inputs  arguments of the calls; the same for kwargs
    runs    number of measured calls, at most 64

    In training a run is forward and the backward of the sum of all outputs: for modules and functions on arrays in train
    mode, and for Keras models with `training=True`. It does not accumulate gradients, and it restores what training changes
    (statistics of batch-norm). Otherwise a run is a call without gradients; so it is for functions of JAX.
    """
    if not 1 <= runs <= 64:
        raise _core.InvalidError(f"sol.profile: runs: expected a number from 1 to 64, got {runs!r}")
    call = Call(inputs, kwargs)
    framework = frameworks.of("sol.profile", model, call)
    if getattr(model, "_sol", None) is None:
        model = frameworks.optimize(model, call)
    with frameworks.profiled(framework, model, call) as run:
        run()
        net = programs.latest(model)
        assert net is not None
        return _runs(str(getattr(model._sol, "name", "")), net, run, runs)
