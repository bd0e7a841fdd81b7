"""Layers, a hook and a pass from outside, for a model of PyTorch: run, trained and deployed. docs/extending.md explains it."""

import ctypes
import sys
import tempfile

import sol
import sol.pytorch
import torch

# -- a layer by its definition: SOL derives code and gradient

sol.register_layer("demo::softclip", "x:float[A..] -> y[A..] | y[A] = m * tanh(x[A] / m)", attributes="m=2.0")


@torch.library.custom_op("demo::softclip", mutates_args=())
def softclip(x: torch.Tensor, m: float = 2.0) -> torch.Tensor:
    return m * torch.tanh(x / m)


softclip.register_fake(lambda x, m=2.0: torch.empty_like(x))
softclip.register_autograd(
    lambda ctx, dy: (dy * (1 - torch.tanh(ctx.x / ctx.m) ** 2), None),
    setup_context=lambda ctx, inputs, output: ctx.__dict__.update(x=inputs[0], m=inputs[1]),
)

# -- a layer as a C function, and its gradient as another one

SOURCE = r"""
int32_t running_max(void *const *tensors, const int64_t *numbers, const double *reals)
{
    const float *x = tensors[0];
    float *y = tensors[1];
    const int64_t rows = numbers[0], n = numbers[1];
    for (int64_t i = 0; i < rows; i++, x += n, y += n)
        for (int64_t k = 0; k < n; k++) y[k] = k && y[k - 1] > x[k] ? y[k - 1] : x[k];
    return 0;
}

/* each gradient goes to the element that was the largest */
int32_t running_max_gradient(void *const *tensors, const int64_t *numbers, const double *reals)
{
    const float *x = tensors[0], *dy = tensors[1];
    float *dx = tensors[2];
    const int64_t rows = numbers[0], n = numbers[1];
    for (int64_t i = 0; i < rows; i++, x += n, dy += n, dx += n) {
        int64_t at = 0;
        for (int64_t k = 0; k < n; k++) {
            if (x[k] >= x[at]) at = k;
            dx[k] = 0;
            dx[at] += dy[k];
        }
    }
    return 0;
}
"""
sol.register_layer(
    "demo::running_max_gradient",
    "x:f32[N C] d_y:f32[N C] -> d_x:f32[N C]",
    source=SOURCE,
    symbol="running_max_gradient",
)
sol.register_layer(
    "demo::running_max",
    "x:f32[N C] -> y:f32[N C]",
    source=SOURCE,
    symbol="running_max",
    gradient="demo::running_max_gradient",
)


# -- a module that stays one unit


class RunningMax(torch.nn.Module):
    def forward(self, x):
        return x.cummax(1).values


@sol.pytorch.register(RunningMax)
def running_max(b, module, x):
    return b.layer("demo::running_max", x)


# -- a pass: -(-x) is x


def join_signs(graph):
    for layer in graph.layers:
        x = layer.inputs[0] if layer.kind == "neg" else None
        if x is not None and x.maker is not None and x.maker.kind == "neg":
            graph.replace(layer.outputs[0], x.maker.inputs[0])
            print("the pass removed two signs")


sol.register_pass("demo::join", join_signs)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.running = torch.nn.Linear(8, 6), RunningMax()

    def forward(self, x):
        return self.running(torch.ops.demo.softclip(self.fc(x), 1.5).neg().neg())


torch.manual_seed(0)
model, x = Model(), torch.randn(4, 8)
net = sol.optimize(model, x, copy=True)
y, z = model(x), net(x)
y.square().sum().backward()
z.square().sum().backward()
print("difference of results ", (y - z).abs().max().item())
print("difference of gradients", (model.fc.weight.grad - net.fc.weight.grad).abs().max().item())
assert torch.allclose(y, z, atol=1e-6) and torch.allclose(model.fc.weight.grad, net.fc.weight.grad, atol=1e-5)

# -- deployed: the library contains the C function, and nothing of SOL

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
sol.deploy(model.eval(), "shared_lib", {"path": folder, "lib_name": "libdemo", "func_name": "demo"}, x)
library = ctypes.CDLL(f"{folder}/libdemo.so")
library.demo_init.restype = ctypes.c_void_p
out = ctypes.POINTER(ctypes.c_float)()
context = library.demo_init(0)
library.demo(ctypes.c_void_p(context), ctypes.c_void_p(x.data_ptr()), ctypes.byref(out))
deployed = torch.tensor(out[: y.numel()]).reshape(y.shape)
print("difference of the library", (deployed - y).abs().max().item())
assert torch.allclose(deployed, y, atol=1e-6)
