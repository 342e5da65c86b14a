"""The classifier of examples/mnist in Keras, on all devices of a TPU or of this machine."""
import keras
import tensorflow as tf

strategy = tf.distribute.TPUStrategy() if tf.config.list_logical_devices("TPU") else tf.distribute.MirroredStrategy()
(x, y), test = keras.datasets.mnist.load_data()
with strategy.scope():
    model = keras.Sequential([
        keras.layers.Rescaling(1 / 255), keras.layers.Reshape((28, 28, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Flatten(), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
model.fit(x, y, 64, epochs=10, validation_data=test, callbacks=[
    keras.callbacks.EarlyStopping(patience=5), keras.callbacks.ModelCheckpoint("run/best.keras", save_best_only=True),
    keras.callbacks.BackupAndRestore("run/checkpoints"), keras.callbacks.CSVLogger("run/losses.csv", append=True),
    keras.callbacks.TensorBoard("run/events"),
])
