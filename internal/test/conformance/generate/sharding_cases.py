"""OpShardings of the strategy's methods and of xla_sharding.

The texts of HloSharding are not TensorFlow's: hlo.py adds them, with jaxlib.
"""

import itertools
import json

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python.compiler.xla.experimental import xla_sharding

from common import message_of, tpu_host


def described(serialized):
    p = xla_data_pb2.OpSharding()
    p.ParseFromString(serialized)
    return {"proto": proto(p), "text": " ".join(str(p).split()), "serialized_hex": serialized.hex()}


def proto(p):
    name = xla_data_pb2.OpSharding.Type.Name
    return {"type": name(p.type), "tile_assignment_dimensions": list(p.tile_assignment_dimensions), "tile_assignment_devices": list(p.tile_assignment_devices),
            "replicate_on_last_tile_dim": p.replicate_on_last_tile_dim, "last_tile_dims": [name(t) for t in p.last_tile_dims], "tuple_shardings": [proto(x) for x in p.tuple_shardings]}


def annotated(strategies, kind, arg, shape, cores, spmd):
    """What gives the sharding that a strategy's annotation leaves; strategies keeps those that were made."""
    if (cores, spmd) not in strategies:
        strategies[cores, spmd] = tpu_host(1, cores, spmd)
    s = strategies[cores, spmd]

    def f():
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, shape)
            call = getattr(s, "experimental_" + kind)
            y = call(x) if arg is None else call(x, arg)
            return y.op.get_attr("sharding")
    return f


def write(path):
    cases = []

    def add(name, api, inputs, f):
        case = {"name": name, "api": api, "input": inputs}
        try:
            case["output"] = described(f())
        except Exception as e:
            case["error"] = {"type": type(e).__name__, "message": message_of(e)}
        cases.append(case)

    strategies = {}

    def method(kind, arg, shape, cores, spmd):
        f = annotated(strategies, kind, arg, shape, cores, spmd)
        add("%s %s shape=%s logical_devices=%d%s" % (kind, arg, shape, cores, " spmd" if spmd else ""), "TPUStrategy.experimental_" + kind,
            {"num_logical_devices": cores, "tensor_shape": shape, "arg": arg, "experimental_spmd_xla_partitioning": spmd}, f)

    shapes = ([8], [4, 6], [5, 3], [None, 4], [], [0, 2], [2, 4, 8], [3, 4, 4, 1])
    for cores, spmd in itertools.product((1, 2, 4, 8), (False, True)):
        for shape in shapes:
            method("replicate_to_logical_devices", None, shape, cores, spmd)
            for device in sorted({0, cores - 1, cores, -1}) if not spmd or shape == [8] else ():
                method("assign_to_logical_device", device, shape, cores, spmd)
            options = {1, 2, cores}
            for parts in itertools.islice(itertools.product(sorted(options), repeat=len(shape)), 12):
                method("split_to_logical_devices", list(parts), shape, cores, spmd)
            method("split_to_logical_devices", [cores] + [1] * len(shape), shape, cores, spmd)
    sharding = xla_sharding.Sharding
    api = "xla_sharding.Sharding"

    def serialized(s):
        return s.proto.SerializeToString() if hasattr(s, "proto") else s._proto.SerializeToString()

    for core in (0, 1, 5, 127):
        add("assign_device %d" % core, api, {"fn": "assign_device", "core": core}, lambda: serialized(sharding.assign_device(core)))
    grids = {"1": [0], "2": [0, 1], "4": [0, 1, 2, 3], "1x2": [[0, 1]], "2x1": [[0], [1]], "2x2": [[0, 1], [2, 3]], "2x2 mixed": [[1, 3], [0, 2]], "1x4": [[0, 1, 2, 3]],
             "2x2x1": [[[0], [1]], [[2], [3]]], "2x1x2": [[[0, 1]], [[2, 3]]], "2x2x2": [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], "2x2x2 transposed": [[[0, 4], [2, 6]], [[1, 5], [3, 7]]]}
    for name, grid in grids.items():
        a = np.array(grid)
        shape = [8] * a.ndim
        add("tile " + name, api, {"fn": "tile", "tile_assignment": grid, "tensor_shape": shape}, lambda: serialized(sharding.tile(a)))
        if a.ndim > 1:
            add("partial_tile " + name, api, {"fn": "partial_tile", "tile_assignment": grid, "tensor_shape": [8] * (a.ndim - 1)}, lambda: serialized(sharding.partial_tile(a)))
        for modes in (["MANUAL"], ["REPLICATED"], ["MANUAL", "REPLICATED"], ["REPLICATED", "MANUAL"]):
            values = [getattr(xla_data_pb2.OpSharding, m) for m in modes]
            add("subgroup_tile %s %s" % (name, modes), api, {"fn": "subgroup_tile", "tile_assignment": grid, "subgroup_modes": modes}, lambda: serialized(sharding.subgroup_tile(a, values)))
        for mapping in itertools.islice(itertools.product((-1, 0, 1, 2), repeat=2), 16):
            used = [m for m in mapping if m >= 0]
            if any(m >= a.ndim for m in used) or len(set(used)) < len(used):
                continue
            for manual in ([None] + [[d] for d in range(a.ndim) if d not in used]):
                add("mesh %s %s%s" % (name, list(mapping), "" if manual is None else " manual %s" % manual), api,
                    {"fn": "mesh_split_sharding", "device_mesh": grid, "tensor_split_dims_mapping": list(mapping), "manual_mesh_dims": manual},
                    lambda: serialized(xla_sharding.mesh_split_sharding(a, list(mapping), manual_mesh_dims=manual)))
    for shape, dim, n, override in (([8], 0, 4, None), ([8, 6], 1, 2, None), ([8, 6], -1, 2, None), ([8, 6], -2, 4, None), ([5, 3], 0, 2, None), ([5, 3], 1, 4, None), ([3], 0, 3, None),
                                    ([None], 0, 2, None), ([2, None], 0, 4, None), ([4, 6], 1, 8, [4, 16]), ([4, 6], 1, 1, None), ([2, 3, 4], 2, 4, None)):
        def f():
            with tf.Graph().as_default():
                return serialized(sharding.split(tf.compat.v1.placeholder(tf.float32, shape), dim, n, override))
        add("split %s dim %d by %d%s" % (shape, dim, n, "" if override is None else " as %s" % override), api,
            {"fn": "split", "tensor_shape": shape, "split_dimension": dim, "num_devices": n, "input_shape": override}, f)
    for outputs in (1, 2, 3):
        for value in range(outputs):
            def f():
                with tf.Graph().as_default():
                    x = tf.compat.v1.placeholder(tf.float32, [outputs * 2])
                    y = tf.split(x, outputs)[value]
                    xla_sharding.assign_device(y, value, assign_tuple_sharding=outputs > 1)
                    return y.op.get_attr("_XlaSharding")
            if outputs > 1:
                add("assign_device on output %d of a %d-output op" % (value, outputs), "xla_sharding.assign_device", {"outputs": outputs, "value_index": value, "device": value}, f)
    with open(path, "w") as f:
        json.dump({"oracle": "tensorflow " + tf.__version__, "generator": "generate.py, hlo.py", "conventions": "the form of sharding.json", "cases": cases}, f)
        f.write("\n")
