"""A training script with Horovod, as one has it: hvdperf run -- horovodrun -np 2 python
examples/train.py

Nothing in it knows of the suite. One thread prepares its batches, one by one.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Horovod knows no Keras 3

import horovod.tensorflow as hvd
import tensorflow as tf

STEPS, BATCH = 300, 32

hvd.init()
images = tf.random.stateless_uniform((1024, 32, 32, 3), (hvd.rank(), 0))
labels = tf.random.stateless_uniform((1024,), (hvd.rank(), 1), 0, 10, tf.int32)


def augment(image, label):
    for _ in range(4):
        image = tf.image.resize(tf.image.random_crop(image, (28, 28, 3)), (32, 32))
        image = tf.image.random_flip_left_right(image)
    return image, label


batches = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().map(augment).batch(BATCH)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10),
    ]
)
optimizer = tf.keras.optimizers.SGD(0.01 * hvd.size())
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


for number, batch in enumerate(batches.take(STEPS)):
    loss = step(*batch)
    if number == 0:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)
if hvd.rank() == 0:
    print(f"loss {float(loss):.3f} after {STEPS} steps")
