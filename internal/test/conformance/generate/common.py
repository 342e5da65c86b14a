"""Strategies on logical CPUs, and the form in which cases are written."""

import collections
import json
import math
import os
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.distribute import values as values_lib
from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

DEVICE = "/job:localhost/replica:0/task:0/device:%s:%d"

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8)

_Named = collections.namedtuple("_Named", "name")


class _Resolver:
    """Says that there are cores, so that TPUStrategyV2 can be made."""

    def __init__(self, cores):
        self.metadata = TPUSystemMetadata(
            num_cores=cores, num_hosts=1, num_of_cores_per_host=cores, topology=None,
            devices=[_Named(DEVICE % ("TPU", i)) for i in range(cores)])

    def get_tpu_system_metadata(self):
        return self.metadata


def mirrored(n):
    """A MirroredStrategy that needs no collective kernels, which a failure ends for good."""
    return tf.distribute.MirroredStrategy([DEVICE % ("CPU", i) for i in range(n)],
                                          cross_device_ops=tf.distribute.ReductionToOneDevice())


def tpu_host(n, cores=1, spmd=False):
    """TPUStrategyV2 whose table of devices names logical CPUs.

    Its host code runs as it is; what it would run on TPUs has no kernels.
    """
    strategy = tpu_strategy.TPUStrategyV2(_Resolver(n * cores), experimental_spmd_xla_partitioning=spmd)
    extended = strategy.extended
    table = [[DEVICE % ("CPU", r * cores + k) for k in range(cores)] for r in range(n)]
    host = DEVICE % ("CPU", 0)
    extended._tpu_devices = np.array(table, dtype=object)
    extended._host_device = host
    extended._device_input_worker_devices = collections.OrderedDict({host: [row[0] for row in table]})
    extended._host_input_worker_devices = collections.OrderedDict({host: [host] * n})
    extended._tpu_cluster_resolver = None
    return strategy


_strategies = {}


def strategy_of(name, tag=""):
    """The strategy of a name such as mirrored-2; another one for another tag."""
    if name == "default":
        return tf.distribute.get_strategy()
    if (name, tag) not in _strategies:
        kind, n = name.rsplit("-", 1)
        _strategies[name, tag] = {"mirrored": mirrored, "tpu-host": tpu_host}[kind](int(n))
    return _strategies[name, tag]


def replicas(strategy):
    return strategy.num_replicas_in_sync


def number(x):
    if isinstance(x, float) and math.isnan(x):
        return "nan"
    if isinstance(x, float) and math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return x


def plain(x):
    """A list or number of an array."""
    if isinstance(x, list):
        return [plain(y) for y in x]
    if isinstance(x, bytes):
        return x.decode()
    if isinstance(x, np.float16):
        return number(float(x))
    return number(x)


def show(x):
    """The form of a value in a case."""
    if x is None or isinstance(x, (bool, int, str)):
        return x
    if isinstance(x, float):
        return number(x)
    if isinstance(x, values_lib.DistributedVariable):
        return {type(x).__name__: [plain(v.numpy().tolist()) for v in x.values]}
    if isinstance(x, values_lib.Mirrored):
        return {"Mirrored": [show(v) for v in x.values]}
    if isinstance(x, values_lib.DistributedValues):
        return {"PerReplica": [show(v) for v in x.values]}
    if isinstance(x, tf.Variable):
        return {"Variable": plain(x.numpy().tolist())}
    if isinstance(x, (tf.Tensor, np.ndarray, np.generic)):
        y = x.numpy() if isinstance(x, tf.Tensor) else x
        if getattr(y, "dtype", None) == tf.bfloat16.as_numpy_dtype:
            y = y.astype(np.float32)
        return plain(y.tolist() if hasattr(y, "tolist") else y)
    if hasattr(x, "_asdict"):
        return {k: show(v) for k, v in x._asdict().items()}
    if isinstance(x, dict):
        return {k: show(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [show(y) for y in x]
    return type(x).__name__


def message_of(e):
    text = re.sub(r"0x[0-9a-f]+", "0x0", str(e))
    text = re.sub(r"\{\{function_node [^}]*\}\} ", "", text)
    return re.sub(r"(/[\w.-]+){2,}\.py", "<file>.py", text)[:400]


def attempt(fn):
    """What fn gives, or how it fails."""
    try:
        return show(fn())
    except Exception as e:  # every kind is an answer
        return {"error": {"type": type(e).__name__, "message": message_of(e)}}


class Cases(list):
    """The cases of a file."""

    def add(self, section, name, strategy, inputs, outputs):
        self.append({"section": section, "name": name, "strategy": strategy, "inputs": inputs, "outputs": outputs})

    def write(self, path, generator, conventions):
        with open(path, "w") as f:
            json.dump({"oracle": "tensorflow " + tf.__version__, "generator": generator,
                       "conventions": conventions, "cases": self}, f, indent=1)
            f.write("\n")


def per_replica(strategy, parts, dtype=None):
    """One tensor a replica."""
    made = [tf.constant(p, dtype=dtype) for p in parts]
    return strategy.experimental_distribute_values_from_function(lambda c: made[c.replica_id_in_sync_group])


def mirror(strategy, value):
    return values_lib.Mirrored([tf.constant(value) for _ in range(replicas(strategy))])
