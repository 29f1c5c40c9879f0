# Keras under Horovod: a small convolutional network on random images, a core for each rank.
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

BATCH, WARM_UP, STEPS = 64, 20, 300  # a rank's batch: two ranks learn from twice as many images

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()
tf.keras.utils.set_random_seed(hvd.rank())  # other images, and other weights until they are broadcast
images = np.random.random((BATCH * 32, 28, 28, 1)).astype(np.float32)
labels = np.random.randint(10, size=len(images))
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH).repeat()
layers = tf.keras.layers
model = tf.keras.Sequential(
    [
        layers.Conv2D(32, 3, activation="relu", input_shape=images.shape[1:]),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
    ]
)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01, momentum=0.9))
model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class Clock(tf.keras.callbacks.Callback):
    """Around the steps alone: fit() itself returns up to seconds after its last one."""

    def on_train_batch_begin(self, step, logs=None):
        if step == WARM_UP:
            self.begin = time.perf_counter()

    def on_train_batch_end(self, step, logs=None):
        self.end = time.perf_counter()


clock = Clock()
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(data, steps_per_epoch=WARM_UP + STEPS, verbose=0, callbacks=[broadcast, clock])

total = sum(float(np.abs(weights).sum()) for weights in model.get_weights())
totals = hvd.allgather(tf.constant([total], tf.float64)).numpy()
assert np.ptp(totals) == 0, f"the ranks have learned different weights: {totals}"
print(f"rank {hvd.rank()} of {hvd.size()} on {os.uname().nodename}, user {os.getuid()}", flush=True)
if hvd.rank() == 0:
    print("horovod", hvd.size() * BATCH * STEPS / (clock.end - clock.begin), flush=True)
