"""A Keras model with SOL: trained by fit, used, saved as a file of Keras. Needs `pip install 'sol[tensorflow]'`."""

import keras
import numpy as np
import sol

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model = sol.optimize(model)

images = np.random.default_rng(0).uniform(size=(256, 28, 28, 1)).astype("float32")
labels = (images[:, :14].mean((1, 2, 3)) > images[:, 14:].mean((1, 2, 3))).astype("int32")
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(images, labels, epochs=3, verbose=2)
print("accuracy", model.evaluate(images, labels, verbose=0)[1])
model.save("digits.keras")
