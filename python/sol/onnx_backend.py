"""`sol.onnx.Backend` implements `onnx.backend.base`, the interface that ONNX's own test suite calls. The module has the same
functions, because the ONNX Backend Scoreboard asks a module for them: `ONNX_BACKEND_MODULE=sol.onnx_backend`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.backend.base import Backend as Base
from onnx.backend.base import BackendRep, namedtupledict

import onnx

from . import _core
from .onnx import Network, load


class Prepared(BackendRep):
    """A model that is ready to run."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._results = namedtupledict("Outputs", [o.name for o in network.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns the outputs as a named tuple. The inputs are an array, a sequence of arrays, or a dict."""
        if not isinstance(inputs, Mapping):
            inputs = dict(
                zip(
                    [i.name for i in self.network.inputs],
                    inputs if isinstance(inputs, list | tuple) else [inputs],
                    strict=True,
                )
            )
        return self._results(*self.network.run(None, inputs))


class Backend(Base):
    """`prepare(model)` compiles, `prepare(model).run(inputs)` runs; `run_model` and `run_node` do both."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The processor."""
        return device == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether SOL can translate the model, with open sizes taken as 1."""
        if not cls.supports_device(device):
            return False
        try:
            cls.prepare(model, device, **kwargs)
        except _core.UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compiles the model if all sizes are known, otherwise at its first run. `fix` has the same meaning as in `sol.optimize`."""
        if not cls.supports_device(device):
            raise _core.UnsupportedError(f"device {device!r}: not supported; there is 'CPU'")
        super().prepare(model, device, **kwargs)  # checks the model
        return Prepared(load(model, fix=kwargs.get("fix")))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one operator for these inputs."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)  # checks the node
        names = [name for name in node.input if name]
        arrays = [np.asarray(v) for v in (inputs if isinstance(inputs, list | tuple) else [inputs])]
        infos = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for name, v in zip(names, arrays, strict=True)
        ]
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, results)
        opset = onnx.helper.make_opsetid(node.domain, kwargs.get("opset_version", onnx.defs.onnx_opset_version()))
        prepared = Prepared(load(onnx.helper.make_model(graph, opset_imports=[opset])))
        return prepared.run(dict(zip(names, arrays, strict=True)))


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
is_compatible = Backend.is_compatible
supports_device = Backend.supports_device
