"""OpShardings of meshes, tiles and splits at their corners: dimensions that are free, of size 1, repeated or not there,
devices that are not counted from 0, ranks of 0, and what is applied to tensors by an op of its own."""

import itertools
import json
import random

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python.compiler.xla.experimental import xla_sharding

from common import message_of
from sharding_cases import annotated, described

S = xla_sharding.Sharding
API = "xla_sharding.Sharding"


def ser(s):
    return s.proto.SerializeToString()


def write(path):
    rng = random.Random(12)
    cases, seen = [], set()

    def add(name, api, inputs, f):
        if name in seen:
            return
        seen.add(name)
        case = {"name": name, "api": api, "input": inputs}
        try:
            case["output"] = described(f())
        except Exception as e:
            case["error"] = {"type": type(e).__name__, "message": message_of(e)}
        cases.append(case)

    def grid(dims, shuffle):
        ids = list(range(int(np.prod(dims))))
        if shuffle == 1:
            rng.shuffle(ids)
        if shuffle == 2:
            ids = [3 * i + 2 for i in ids]
        return np.array(ids, dtype=np.int64).reshape(dims)

    def mesh(dims, mapping, manual, shuffle):
        a = grid(dims, shuffle)
        inp = {"fn": "mesh_split_sharding", "device_mesh": a.tolist(), "tensor_split_dims_mapping": mapping}
        if manual is not None:
            inp["manual_mesh_dims"] = manual
        add("mesh %s of %s: %s manual %s" % (dims, a.reshape(-1).tolist(), mapping, manual), API, inp,
            lambda: ser(xla_sharding.mesh_split_sharding(a, mapping, manual_mesh_dims=manual)))

    for dims in ([1], [2], [4], [1, 1], [1, 2], [2, 1], [2, 2], [1, 4], [2, 1, 2], [2, 2, 2], [1, 1, 1], [3, 2], [2, 3, 1]):
        rank = len(dims)
        for length in range(0, 4):
            options = [p for p in itertools.product(range(-2, rank + 1), repeat=length)]
            for mapping in rng.sample(options, min(len(options), 10)) + ([[-1] * length] if length else []):
                manual = rng.choice([None, None, [], [rng.randrange(rank)], [rng.randrange(rank), rng.randrange(rank)], list(range(rank)), [-1], [rank]])
                mesh(dims, list(mapping), manual, rng.choice([0, 0, 1, 2]))
        mesh(dims, [-1, -1], None, 0)
        mesh(dims, [-1, -1], [0], 0)
        mesh(dims, [-1, -1], list(range(rank)), 0)
        mesh(dims, [-1, 0, -1], None, 1)
    for dims in ([], [1], [2], [1, 1], [2, 1], [1, 2], [2, 2], [1, 1, 1], [2, 1, 2], [1, 2, 3], [4, 1, 1]):
        for shuffle in (0, 1, 2):
            a = grid(dims, shuffle)
            name, inp = "%s of %s" % (dims, a.reshape(-1).tolist()), {"tile_assignment": a.tolist(), "tensor_shape": [12] * len(dims)}
            add("tile " + name, API, dict(inp, fn="tile"), lambda: ser(S.tile(a)))
            add("partial_tile " + name, API, {"fn": "partial_tile", "tile_assignment": a.tolist(), "tensor_shape": [12] * (len(dims) - 1)}, lambda: ser(S.partial_tile(a)))
            for n in range(0, len(dims) + 2):
                modes = [rng.choice(["MANUAL", "REPLICATED", "MANUAL", "REPLICATED", "UNREDUCED", "MAXIMAL", "OTHER", "TUPLE"]) for _ in range(n)]
                if shuffle == 0:
                    modes = [rng.choice(["MANUAL", "REPLICATED"]) for _ in range(n)]
                add("subgroup_tile %s %s" % (name, modes), API, {"fn": "subgroup_tile", "tile_assignment": a.tolist(), "subgroup_modes": modes},
                    lambda: ser(S.subgroup_tile(a, [xla_data_pb2.OpSharding.Type.Value(m) for m in modes])))
    for _ in range(120):
        rank = rng.randint(0, 3)
        shape = [rng.choice([0, 1, 2, 3, 8, None]) for _ in range(rank)]
        dim, n = rng.randint(-rank - 1, rank), rng.choice([0, 1, 2, 3, 8, -1])
        over = rng.choice([None, None, [], [8] * rank, [16] * (rank + 1), [4] * max(rank - 1, 0)])
        inp = {"fn": "split", "tensor_shape": shape, "split_dimension": dim, "num_devices": n}
        if over is not None:
            inp["input_shape"] = over

        def f():
            with tf.Graph().as_default():
                return ser(S.split(tf.compat.v1.placeholder(tf.float32, shape), dim, n, over))
        add("split of %s: axis %d by %d as %s" % (shape, dim, n, over), API, inp, f)
    for device in (0, 1, 7, 4096, -1):
        add("assign_device %d" % device, API, {"fn": "assign_device", "core": device}, lambda: ser(S.assign_device(device)))

    def applied(fn, shape, attribute="_XlaSharding"):
        with tf.Graph().as_default():
            y = fn(tf.compat.v1.placeholder(tf.float32, shape))
            return y.op.get_attr(attribute)

    square = np.array([[0, 1], [2, 3]])
    for use, unspecified in ((False, None), (True, None), (True, [0]), (True, [1]), (True, [0, 1]), (False, [1])):
        note = " by an op %s, unspecified %s" % (use, unspecified)
        kw = {"use_sharding_op": use}
        if unspecified is not None:
            kw["unspecified_dims"] = unspecified
        for mapping in ([0, 1], [1, 0], [-1, -1], [-1, 0], [1, -1]):
            inp = dict(kw, device_mesh=square.tolist(), tensor_split_dims_mapping=mapping, tensor_shape=[4, 8])
            add("mesh_split %s%s" % (mapping, note), "xla_sharding.mesh_split", inp, lambda: applied(lambda x: xla_sharding.mesh_split(x, square, mapping, **kw), [4, 8]))
            manual = dict(kw, manual_mesh_dims=[1])
            add("mesh_split %s%s, manual" % (mapping, note), "xla_sharding.mesh_split", dict(inp, manual_mesh_dims=[1]),
                lambda: applied(lambda x: xla_sharding.mesh_split(x, square, mapping, **manual), [4, 8]))
        add("tile" + note, "xla_sharding.tile", dict(kw, tile_assignment=square.tolist(), tensor_shape=[4, 8]), lambda: applied(lambda x: xla_sharding.tile(x, square, **kw), [4, 8]))
        add("partial_tile" + note, "xla_sharding.partial_tile", dict(kw, tile_assignment=[[[0, 2]], [[1, 3]]], tensor_shape=[4, 8]),
            lambda: applied(lambda x: xla_sharding.partial_tile(x, np.array([[[0, 2]], [[1, 3]]]), **kw), [4, 8]))
    for tup, use in itertools.product((False, True), repeat=2):
        kw = dict(assign_tuple_sharding=tup, use_sharding_op=use)
        note = " tuple %s op %s" % (tup, use)
        for shape in ([8], [4, 8], [8, None]):
            add("replicate %s%s" % (shape, note), "xla_sharding.replicate", dict(kw, tensor_shape=shape), lambda: applied(lambda x: xla_sharding.replicate(x, **kw), shape))
            add("assign_device 1 %s%s" % (shape, note), "xla_sharding.assign_device", dict(kw, device=1, tensor_shape=shape), lambda: applied(lambda x: xla_sharding.assign_device(x, 1, **kw), shape))
            for dim in (0, -1, 1):
                add("split %s dim %d%s" % (shape, dim, note), "xla_sharding.split", dict(kw, split_dimension=dim, num_devices=4, tensor_shape=shape),
                    lambda: applied(lambda x: xla_sharding.split(x, dim, 4, **kw), shape))
    strategies = {}
    for cores in (1, 2, 4, 6):
        for shape, parts in itertools.product(([], [1], [4], [12], [None], [4, 6], [6, 4], [None, None], [1, 1], [2, 1, 12]),
                                              ([], [1], [-1], [0], [cores], [-1, -1], [1, 1], [cores, 1], [1, cores], [2, 2], [2, 3], [3, 2], [1, -1, cores], [1, 1, cores])):
            if len(parts) not in (len(shape), len(shape) + 1) or cores == 4 and rng.random() < 0.5:
                continue
            spmd = rng.random() < 0.5
            add("split_to_logical_devices: %s of %s over %d%s" % (parts, shape, cores, " (SPMD)" if spmd else ""), "TPUStrategy.experimental_split_to_logical_devices",
                {"num_logical_devices": cores, "tensor_shape": shape, "arg": parts, "experimental_spmd_xla_partitioning": spmd}, annotated(strategies, "split_to_logical_devices", parts, shape, cores, spmd))
    shapes = []
    for case in cases:
        if "output" in case and case["output"]["serialized_hex"]:
            if not any(case["output"]["proto"]["tile_assignment_dimensions"]) or min(case["output"]["proto"]["tile_assignment_dimensions"]) < 1:
                continue
            got = xla_sharding.get_sharding_tile_shape(bytes.fromhex(case["output"]["serialized_hex"]))
            if rng.random() < 0.15:
                shapes.append({"serialized_hex": case["output"]["serialized_hex"], "result": None if got is None else list(got)})
    with open(path, "w") as f:
        json.dump({"oracle": "tensorflow " + tf.__version__, "generator": "generate.py, hlo.py", "conventions": "the form of sharding.json",
                   "get_sharding_tile_shape": shapes, "cases": cases}, f)
        f.write("\n")
