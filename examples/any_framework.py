"""A PyTorch model, trained by Keras's fit, and back into PyTorch. Needs torch and `pip install 'sol[tensorflow]'`."""

import keras
import numpy as np
import sol
import torch
from torch import nn

keras.utils.set_random_seed(0)  # PyTorch's seed, too
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(72, 2))
images = np.random.default_rng(0).uniform(size=(256, 1, 16, 16)).astype("float32")  # NCHW, as the model takes them
labels = (images[:, 0, :8].mean((1, 2)) > images[:, 0, 8:].mean((1, 2))).astype("int32")

net = sol.optimize(model, sol.input([0, 1, 16, 16]), framework="tensorflow")
net.compile(
    keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
net.fit(images, labels, epochs=5, verbose=2)

sol.transfer(net, model)  # what Keras has trained, statistics included
model.eval()
found = model(torch.from_numpy(images)).argmax(1).numpy()
print("accuracy in PyTorch", (found == labels).mean())
