"""Steps as TPUStrategyV2 traces them, over a slice that is made up: only graphs are built.

What is counted is what a run adds to the graph, not the variables' creation.
"""

import collections
import itertools
import json

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.distribute import values as values_lib
from tensorflow.python.tpu import device_assignment as assignment_lib
from tensorflow.python.tpu import topology as topology_lib
from tensorflow.python.tpu import tpu

from common import _Resolver, message_of

COUNTED = ("TPUReplicatedInput", "TPUReplicatedOutput", "CrossReplicaSum", "AllToAll", "XlaSharding", "Pad", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ReadVariableOp")
LISTED = ("AddV2", "Sub", "Mul", "MatMul", "CrossReplicaSum", "XlaSharding")
AGGREGATIONS = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
# The shape of a replica of so many logical devices on a slice of 2x2 chips of two cores.
REPLICA = {1: [1, 1, 1, 1], 2: [1, 1, 1, 2], 4: [1, 2, 1, 2], 8: [2, 2, 1, 2]}
TOPOLOGY = topology_lib.Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=np.array(
    [[[x, y, 0, c] for y in range(2) for x in range(2) for c in range(2)]], dtype=np.int32))


def strategy_of(n, p, assigned=True, spmd=False):
    if not assigned:
        return tpu_strategy.TPUStrategyV2(_Resolver(n), experimental_spmd_xla_partitioning=spmd)
    assignment = assignment_lib.DeviceAssignment.build(TOPOLOGY, computation_shape=REPLICA[p], num_replicas=n)
    return tpu_strategy.TPUStrategyV2(_Resolver(8), experimental_device_assignment=assignment, experimental_spmd_xla_partitioning=spmd)


def sharding_of(op):
    if op.type != "XlaSharding":
        return None
    p = xla_data_pb2.OpSharding()
    p.ParseFromString(op.get_attr("sharding"))
    return {"type": xla_data_pb2.OpSharding.Type.Name(p.type), "dims": list(p.tile_assignment_dimensions), "devices": list(p.tile_assignment_devices)}


def metadata_of(op):
    m = {k: op.get_attr(k) for k in ("num_replicas", "num_cores_per_replica", "device_assignment", "computation_shape", "use_tpu", "use_spmd_for_xla_partitioning", "topology",
                                     "padding_map", "allow_soft_placement", "step_marker_location", "host_compute_core")}
    m["topology"] = "<%d bytes>" % len(m["topology"])
    m["step_marker_location"] = m["step_marker_location"].decode()
    m["padding_map"] = [x.hex() for x in m["padding_map"]]
    return m


class Case:
    """One case: body builds the variables it needs, then calls run, once."""

    def __init__(self, name, n, p, body, assigned=True, spmd=False):
        self.s = strategy_of(n, p, assigned, spmd)
        self.out = {"name": name, "num_replicas": n, "num_logical_devices": p}
        self.calls = 0
        self.before = 0
        with tf.Graph().as_default() as graph:
            self.graph = graph
            try:
                body(self)
            except Exception as e:
                kept = {k: self.out[k] for k in ("name", "num_replicas", "num_logical_devices")}
                self.out = dict(kept, error={"type": type(e).__name__, "message": message_of(e)})
                return
            ops = graph.get_operations()[self.before:]
        observed = {k: self.out.pop(k) for k in ("observed", "fn_calls") if k in self.out}
        self.out["metadata"] = [metadata_of(o) for o in ops if o.type == "TPUReplicateMetadata"]
        self.out["op_counts"] = dict(collections.Counter(o.type for o in ops if o.type in COUNTED or o.type.startswith("ResourceScatter")))
        self.out["ops"] = [{"op": o.type, "device": o.device, "sharding": sharding_of(o)} for o in ops if o.type in LISTED]
        self.out.update(observed)

    def run(self, fn, *args, **options):
        self.before = len(self.graph.get_operations())
        if callable(fn):
            fn = tf.autograph.experimental.do_not_convert(fn)
        if options:
            return self.s.run(fn, args=args, options=tf.distribute.RunOptions(**options))
        return self.s.run(fn, args=args)

    def input(self, shape=(4,), dtype="float32"):
        return tf.compat.v1.placeholder(dtype, shape)

    def variable(self, aggregation="NONE", on_read=False, value=1., dtype=None):
        with self.s.scope():
            return tf.Variable(value, dtype=dtype, aggregation=tf.VariableAggregation[aggregation],
                               synchronization=tf.VariableSynchronization.ON_READ if on_read else tf.VariableSynchronization.AUTO)


def context():
    return tf.distribute.get_replica_context()


def own(dtype="float32"):
    """A replica's own value."""
    return tf.cast(context().replica_id_in_sync_group, dtype) + tf.constant(1, dtype)


def steps(f, shape=(4,), dtype="float32", **options):
    """A body whose step is f of one input."""
    return lambda c: c.run(f, c.input(shape, dtype), **options)


def noted(make):
    """A body that records what make(case) gives."""
    def body(c):
        c.out["observed"] = make(c)
    return body


def write(path):
    cases = []

    def add(name, n, p, body, **kwargs):
        cases.append(Case(name, n, p, body, **kwargs).out)

    runs(add)
    collectives(add)
    merges(add)
    contexts(add)
    annotations(add)
    inputs(add)
    variables(add)
    others(add)
    with open(path, "w") as f:
        json.dump({"oracle": "tensorflow " + tf.__version__, "generator": "generate.py", "conventions": "the form of tpu_graph.json", "cases": cases}, f)
        f.write("\n")


def runs(add):
    for n in (8, 1, 2, 4):
        add("plain run, no device assignment, %d replica%s" % (n, "s" * (n > 1)), n, 1, steps(lambda x: x + 1.), assigned=False)
    for n, p in ((1, 8), (1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)):
        add("run with %d logical device%s, %d replica%s" % (p, "s" * (p > 1), n, "s" * (n > 1)), n, p, steps(lambda x: x + 1.))
    for n, p in ((4, 2), (8, 1), (1, 2)):
        def body(c):
            calls = []

            def step(x):
                calls.append(x)
                return x
            c.run(step, c.input())
            c.out["fn_calls"] = len(calls)
        add("fn is traced once, whatever the number of replicas" if n > 1 else "fn is traced once with one replica", n, p, body)
    for n, p in ((1, 8), (1, 1), (4, 2)):
        add("one replica: a bare tensor" if n == 1 else "several replicas: a PerReplica", n, p,
            noted(lambda c: [type(c.run(lambda x: x, c.input())).__name__]))
    add("two arguments", 4, 2, lambda c: c.run(lambda x, y: x + y, c.input(), c.input()))
    add("a dict argument", 4, 2, lambda c: c.run(lambda d: d["a"] * d["b"], {"a": c.input(), "b": c.input()}))
    add("a python float argument", 4, 2, lambda c: c.run(lambda x: x + 1., 2.))
    add("no arguments, the replica id returned", 4, 2, lambda c: c.run(lambda: context().replica_id_in_sync_group))
    add("replica id is a symbolic tensor", 4, 2, noted(lambda c: ids(c)))
    add("fn returns None", 4, 2, steps(lambda x: None))
    add("fn returns a list of two tensors", 4, 2, steps(lambda x: [x + 1., x * 2.]))
    add("fn returns a dict", 4, 2, steps(lambda x: {"a": x + 1., "b": x}))
    add("fn captures a tensor from outside run", 4, 2, captured)
    add("num_replicas_in_sync is a python int inside run", 4, 2, noted(lambda c: replicas(c)))
    add("a PerReplica argument gives each replica its own component", 4, 2, lambda c: c.run(lambda x: x + 1., per_replica(c)))
    add("experimental_spmd_xla_partitioning sets use_spmd_for_xla_partitioning", 4, 2, steps(lambda x: x + 1.), spmd=True)
    add("SPMD partitioning, 1 replica of 8 logical devices", 1, 8, steps(lambda x: x + 1.), spmd=True)
    add("fn raises an exception", 4, 2, steps(fails))
    add("run is called twice with the same fn: two replicated computations", 4, 2, twice)


def ids(c):
    seen = []

    def step():
        seen.append(type(context().replica_id_in_sync_group).__name__)
        return context().replica_id_in_sync_group + 1
    c.run(step)
    return {"replica_id_type": seen[0]}


def replicas(c):
    seen = []

    def step(x):
        seen.append(context().num_replicas_in_sync)
        return x
    c.run(step, c.input())
    return {"num_replicas_in_sync": seen[0]}


def fails(x):
    raise ValueError("raised in a replica")


def captured(c):
    y = c.input()
    c.run(lambda x: x + y, c.input())


def twice(c):
    x, f = c.input(), lambda x: x + 1.
    c.run(f, x)
    c.s.run(f, args=(x,))


def per_replica(c):
    return values_lib.PerReplica([c.input() for _ in range(c.s.num_replicas_in_sync)])


def collectives(add):
    def reduced(op):
        return lambda x: context().all_reduce(op, x)
    for op in ("SUM", "MEAN"):
        add("all_reduce " + op + " multiplies by 1/replicas before the cross-replica sum" * (op == "MEAN"), 4, 2, steps(reduced(op)))
        for n, p in ((1, 1), (2, 1), (2, 4), (8, 1)):
            add("all_reduce %s, %d replicas of %d logical devices" % (op, n, p), n, p, steps(reduced(op)))
        for dtype in ("float16", "bfloat16", "float64", "int32", "uint32", "int64", "uint8", "int8", "int16", "uint16", "uint64", "bool", "complex64"):
            add("all_reduce %s of %s" % (op, dtype), 4, 2, steps(reduced(op), dtype=dtype))
        for shape in ((), (2, 3), (2, 3, 4)):
            add("all_reduce %s of a %s" % (op, "scalar" if not shape else "tensor of shape %s" % list(shape)), 4, 2, steps(reduced(op), shape))
        add("all_reduce %s of a list of two tensors" % op, 4, 2, steps(lambda x: context().all_reduce(op, [x, x + 1.])))
        add("all_reduce %s of a nest {a: x, b: (x, x)}" % op, 4, 2, steps(lambda x: context().all_reduce(op, {"a": x, "b": (x, x * 2.)})))
        add("all_reduce %s of a python float" % op, 4, 2, lambda c: c.run(lambda: context().all_reduce(op, 3.)))
        add("all_reduce %s of the replica id" % op, 4, 2, lambda c: c.run(lambda: context().all_reduce(op, context().replica_id_in_sync_group)))
        add("all_reduce %s of a constant" % op, 4, 2, lambda c: c.run(lambda: context().all_reduce(op, tf.constant(3.))))
        add("all_reduce %s twice" % op, 4, 2, steps(lambda x: reduced(op)(reduced(op)(x))))
        add("gradient of all_reduce %s" % op, 4, 2, steps(with_gradient(reduced(op))))
        add("all_reduce %s under SPMD partitioning" % op, 4, 2, steps(reduced(op)), spmd=True)
        add("all_reduce %s by the string %r" % (op, op.lower()), 4, 2, steps(reduced(op.lower())))
    add("all_reduce MAX is not a ReduceOp", 4, 2, steps(reduced("MAX")))
    add("all_reduce PROD", 4, 2, steps(reduced("PROD")))
    add("all_reduce with options bytes_per_pack", 4, 2, steps(lambda x: context().all_reduce("SUM", x, options=tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1024))))

    def gathered(axis):
        return lambda x: context().all_gather(x, axis=axis)
    add("all_gather int64 falls back to all-to-all", 4, 2, steps(gathered(0), dtype="int64"))
    for dtype in ("float32", "float16", "bfloat16", "float64", "int32", "uint32", "uint8", "int8", "int16", "uint64", "bool", "complex64"):
        add("all_gather %s" % dtype, 4, 2, steps(gathered(0), dtype=dtype))
    for shape, axis in (((2, 3), 0), ((2, 3), 1), ((2, 3), -1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((2, 3, 4), -3), ((4,), -1)):
        for dtype in ("float32", "int64"):
            add("all_gather %s, axis %d of shape %s" % (dtype, axis, list(shape)), 4, 2, steps(gathered(axis), shape, dtype))
    add("all_gather of a scalar", 4, 2, steps(gathered(0), ()))
    add("all_gather axis 1 of rank 1", 4, 2, steps(gathered(1)))
    add("all_gather of a list of two tensors", 4, 2, steps(lambda x: context().all_gather([x, x + 1.], axis=0)))
    for n, p in ((1, 1), (2, 1), (8, 1), (2, 4)):
        add("all_gather float32, %d replicas of %d logical devices" % (n, p), n, p, steps(gathered(0)))
    add("gradient of all_gather", 4, 2, steps(with_gradient(gathered(0))))
    add("all_gather under SPMD partitioning", 4, 2, steps(gathered(0)), spmd=True)
    for shape in ((), (4,), (2, 2)):
        add("broadcast_to inside run of a tensor of shape %s" % list(shape), 4, 2, steps(lambda x: context().merge_call(lambda s, y: s.extended.broadcast_to(y, y), args=(x,)), shape))


def with_gradient(f):
    def step(x):
        y = f(x * x)
        return y, tf.gradients(y, x)[0]
    return step


def merges(add):
    def merged(f):
        return lambda x: context().merge_call(f, args=(x,))

    def seen(c):
        out = {}

        def fn(s, y):
            out.update(merge_arg_type=type(y).__name__, merge_arg_is_per_replica=type(y).__name__ == "PerReplica", cross=tf.distribute.in_cross_replica_context(),
                       local_results_len=len(s.experimental_local_results(y)))
            return y
        c.run(merged(fn), c.input())
        return out
    add("merge_call inside run: the merge argument is ONE symbolic tensor, not a PerReplica", 4, 2, noted(seen))
    add("merge_call summing experimental_local_results (the doc example) does not sum across TPU replicas", 4, 2, steps(merged(lambda s, y: sum(s.experimental_local_results(y)))))
    add("strategy.reduce inside merge_call", 4, 2, steps(merged(lambda s, y: s.reduce("SUM", y, axis=None))))
    for op in ("SUM", "MEAN"):
        add("strategy.reduce %s inside merge_call" % op, 4, 2, steps(merged(lambda s, y: s.reduce(op, y, axis=None))))
        add("extended.reduce_to %s inside merge_call" % op, 4, 2, steps(merged(lambda s, y: s.extended.reduce_to(op, y, destinations=y))))
        add("extended.batch_reduce_to %s of two values inside merge_call" % op, 4, 2, steps(merged(lambda s, y: s.extended.batch_reduce_to(op, [(y, y), (y, y)]))))
        add("strategy.reduce %s axis=0 inside merge_call" % op, 4, 2, steps(merged(lambda s, y: s.reduce(op, y, axis=0))))
        add("strategy.reduce %s of a python float inside merge_call" % op, 4, 2, steps(merged(lambda s, y: s.reduce(op, 3., axis=None))))
        for dtype in ("int32", "int64", "bool", "bfloat16"):
            add("strategy.reduce %s of %s inside merge_call" % (op, dtype), 4, 2, steps(merged(lambda s, y: s.reduce(op, y, axis=None)), dtype=dtype))
        add("strategy.reduce %s inside merge_call, 8 replicas" % op, 8, 1, steps(merged(lambda s, y: s.reduce(op, y, axis=None))))
        add("strategy.reduce %s inside merge_call, one replica" % op, 1, 2, steps(merged(lambda s, y: s.reduce(op, y, axis=None))))
    add("two merge_calls in a row, each with a reduce", 4, 2, steps(lambda x: merged(lambda s, y: s.reduce("SUM", y, axis=None))(merged(lambda s, y: s.reduce("SUM", y, axis=None))(x))))
    add("merge_call returns its argument", 4, 2, steps(merged(lambda s, y: y)))
    add("merge_call with a python constant result", 4, 2, noted(lambda c: type(c.run(merged(lambda s, y: 5), c.input())).__name__))
    add("merge_call without arguments", 4, 2, lambda c: c.run(lambda: context().merge_call(lambda s: tf.constant(3.))))
    add("merge_call inside merge_call", 4, 2, steps(merged(lambda s, y: context().merge_call(lambda s, z: z, args=(y,)))))
    add("get_replica_context() inside merge_call is None", 4, 2, noted(inside_merge))
    add("merge_call whose fn raises", 4, 2, steps(merged(lambda s, y: fails(y))))
    add("merge_call inside tf.cond", 4, 2, steps(lambda x: tf.cond(x[0] > 0, lambda: merged(lambda s, y: y)(x), lambda: x)))
    add("all_reduce inside merge_call", 4, 2, steps(merged(lambda s, y: context().all_reduce("SUM", y))))
    add("gather inside merge_call", 4, 2, steps(merged(lambda s, y: s.gather(y, axis=0))))
    add("run inside merge_call", 4, 2, steps(merged(lambda s, y: s.run(lambda z: z + 1., args=(y,)))))
    for kind in ("assign", "assign_add"):
        def body(c):
            v = c.variable("SUM")
            c.run(lambda: context().merge_call(lambda s, y: getattr(v, kind)(s.reduce("SUM", y, axis=None)), args=(own(),)))
        add("%s of a reduced value inside merge_call, mirrored variable, aggregation SUM" % kind, 4, 2, body)
    add("extended.update with a reduced value inside merge_call", 4, 2, updated)
    add("read inside merge_call: mirrored variable, aggregation SUM", 4, 2, lambda c: read_merged(c, False))
    add("read inside merge_call: ON_READ variable, aggregation SUM", 4, 2, lambda c: read_merged(c, True))


def inside_merge(c):
    out = {}

    def fn(s, y):
        out.update(replica_context=context() is not None, strategy_is=s is c.s)
        return y
    c.run(lambda x: context().merge_call(fn, args=(x,)), c.input())
    return out


def updated(c):
    v = c.variable("SUM")

    def fn(s, y):
        return s.extended.update(v, lambda v, z: v.assign(z), args=(s.reduce("SUM", y, axis=None),))
    c.run(lambda: context().merge_call(fn, args=(own(),)))


def read_merged(c, on_read):
    v = c.variable("SUM", on_read)
    c.run(lambda: context().merge_call(lambda s: v.read_value() + 1.))


def contexts(add):
    def inner(f):
        return lambda c: c.run(lambda x: f(c, x), c.input())
    add("run inside run", 4, 2, inner(lambda c, x: c.s.run(lambda y: y, args=(x,))))
    add("scope inside run", 4, 2, inner(lambda c, x: entered(c.s, x)))
    add("scope of another strategy inside run", 4, 2, inner(lambda c, x: entered(strategy_of(2, 1), x)))
    add("run of another strategy inside run", 4, 2, inner(lambda c, x: strategy_of(2, 1).run(lambda y: y, args=(x,))))
    add("reduce inside run", 4, 2, inner(lambda c, x: c.s.reduce("SUM", x, axis=None)))
    add("reduce with axis inside run", 4, 2, inner(lambda c, x: c.s.reduce("SUM", x, axis=0)))
    add("gather inside run", 4, 2, inner(lambda c, x: c.s.gather(x, axis=0)))
    add("extended.reduce_to inside run", 4, 2, inner(lambda c, x: c.s.extended.reduce_to("SUM", x, x)))
    add("extended.batch_reduce_to inside run", 4, 2, inner(lambda c, x: c.s.extended.batch_reduce_to("SUM", [(x, x)])))
    add("extended.broadcast_to inside run", 4, 2, inner(lambda c, x: c.s.extended.broadcast_to(x, x)))
    add("extended.call_for_each_replica inside run", 4, 2, inner(lambda c, x: c.s.extended.call_for_each_replica(lambda y: y, args=(x,))))
    add("extended.update_non_slot inside run", 4, 2, inner(lambda c, x: c.s.extended.update_non_slot(None, lambda: x)))
    add("experimental_local_results inside run", 4, 2, noted(lambda c: local(c)))
    add("get_strategy inside run is the strategy", 4, 2, noted(lambda c: inside(c)))
    add("run in the strategy's scope", 4, 2, lambda c: scoped(c, c.s))
    add("run in the scope of another strategy", 4, 2, lambda c: scoped(c, strategy_of(2, 1)))
    add("run inside the strategy's own nested scope", 4, 2, lambda c: nested(c))

    def update(c):
        v = c.variable("SUM")
        c.run(lambda: c.s.extended.update(v, lambda v: v.assign(1.)))
    add("extended.update inside run", 4, 2, update)


def entered(s, x):
    with s.scope():
        return x + 1.


def scoped(c, s):
    with s.scope():
        c.run(lambda x: x + 1., c.input())


def nested(c):
    with c.s.scope(), c.s.scope():
        c.run(lambda x: x + 1., c.input())


def local(c):
    out = {}

    def step(x):
        out["local_results_len"] = len(c.s.experimental_local_results(x))
        return x
    c.run(step, c.input())
    return out


def inside(c):
    out = {}

    def step(x):
        out.update(same=tf.distribute.get_strategy() is c.s, cross=tf.distribute.in_cross_replica_context(), has_strategy=tf.distribute.has_strategy())
        return x
    c.run(step, c.input())
    return out


def annotations(add):
    def split(c, x, parts):
        return c.s.experimental_split_to_logical_devices(x, parts)

    def annotated(f, shape=(4,), dtype="float32"):
        return lambda c: c.run(lambda x: f(c, x + tf.constant(1, dtype)), c.input(shape, dtype))
    taken = ((4, 2, [2], (4,)), (1, 8, [8], (8,)), (2, 4, [4], (8,)), (2, 4, [2, 2], (4, 4)), (2, 4, [1, 4], (4, 8)), (2, 4, [4, 1], (4, 8)), (1, 8, [2, 4], (4, 8)),
             (1, 8, [2, 2, 2], (4, 4, 4)), (4, 2, [1, 2, 1], (4, 4, 4)), (4, 2, [2, 1, 1, 1], (4, 4, 4, 4)), (8, 1, [1], (4,)))
    refused = ((4, 2, [1, 1], (4, 4)), (4, 2, [1], (4,)), (4, 2, [2], (5,)), (4, 2, [3], (6,)), (4, 2, [4], (4,)), (2, 4, [2], (4,)), (4, 2, [2], (4, 4)), (4, 2, [2, 1], (4,)),
               (4, 2, [0], (4,)), (4, 2, [-2], (4,)), (4, 2, [2, 2], (4, 4)), (4, 2, [], ()), (4, 2, [2], ()))
    for n, p, parts, shape in taken + refused:
        add("split_to_logical_devices %s%s" % (parts, "" if (n, p, shape) == (4, 2, (4,)) else " of shape %s" % list(shape)), n, p, annotated(lambda c, x: split(c, x, parts), shape))
    add("split_to_logical_devices [2, 2] under SPMD partitioning", 2, 4, annotated(lambda c, x: split(c, x, [2, 2]), (4, 4)), spmd=True)
    for shape in ((), (4,), (4, 4), (2, 3, 4)):
        add("replicate_to_logical_devices of shape %s" % list(shape), 4, 2, annotated(lambda c, x: c.s.experimental_replicate_to_logical_devices(x), shape))
    add("replicate_to_logical_devices", 4, 2, annotated(lambda c, x: c.s.experimental_replicate_to_logical_devices(x)))
    add("replicate_to_logical_devices under SPMD partitioning", 2, 4, annotated(lambda c, x: c.s.experimental_replicate_to_logical_devices(x)), spmd=True)
    add("replicate_to_logical_devices with one logical device", 8, 1, annotated(lambda c, x: c.s.experimental_replicate_to_logical_devices(x)))
    for n, p, k in ((4, 2, 0), (4, 2, 1), (4, 2, 2), (4, 2, -1), (1, 8, 7), (1, 8, 8), (2, 4, 3), (8, 1, 0), (8, 1, 1)):
        add("assign_to_logical_device %d of %d" % (k, p), n, p, annotated(lambda c, x: c.s.experimental_assign_to_logical_device(x, k)))
    add("assign_to_logical_device 1", 4, 2, annotated(lambda c, x: c.s.experimental_assign_to_logical_device(x, 1)))
    add("assign_to_logical_device 1 of a tensor of shape [2, 3]", 4, 2, annotated(lambda c, x: c.s.experimental_assign_to_logical_device(x, 1), (2, 3)))
    add("assign_to_logical_device 0 under SPMD partitioning", 2, 4, annotated(lambda c, x: c.s.experimental_assign_to_logical_device(x, 0)), spmd=True)
    for method, given in (("split_to_logical_devices", [[2]]), ("replicate_to_logical_devices", []), ("assign_to_logical_device", [1])):
        for dtype in ("int32", "bfloat16", "int64"):
            add("%s of %s" % (" ".join([method] + [str(k) for k in given]), dtype), 4, 2,
                annotated(lambda c, x: getattr(c.s, "experimental_" + method)(x, *given), dtype=dtype))
    for n, p, k in ((4, 2, 0), (4, 2, 1), (1, 8, 5), (4, 2, 2), (8, 1, 0), (4, 2, -1)):
        def body(c):
            def step(x):
                with c.s.extended.experimental_logical_device(k):
                    return x + 1.
            c.run(step, c.input())
        add("experimental_logical_device(%d), %d logical devices" % (k, p), n, p, body)

    def context_device(c):
        def step(x):
            with context().experimental_logical_device(1):
                return x + 1.
        c.run(step, c.input())
    add("ReplicaContext.experimental_logical_device(1)", 4, 2, context_device)

    def two(c):
        def step(x):
            with c.s.extended.experimental_logical_device(0):
                y = x + 1.
            with c.s.extended.experimental_logical_device(1):
                return y + 2.
        c.run(step, c.input())
    add("logical_device(0) then logical_device(1)", 4, 2, two)


def inputs(add):
    for enabled in (False, True):
        add("input with unknown batch, RunOptions experimental_enable_dynamic_batch_size=%s" % enabled, 4, 2, steps(lambda x: None, (None,), experimental_enable_dynamic_batch_size=enabled))
        add("input with known batch, RunOptions experimental_enable_dynamic_batch_size=%s" % enabled, 4, 2, steps(lambda x: x + 1., (4,), experimental_enable_dynamic_batch_size=enabled))
        add("input with unknown rank, RunOptions experimental_enable_dynamic_batch_size=%s" % enabled, 4, 2, steps(lambda x: None, None, experimental_enable_dynamic_batch_size=enabled))
        add("RunOptions experimental_bucketizing_dynamic_shape=%s" % enabled, 4, 2, steps(lambda x: x + 1., (4,), experimental_bucketizing_dynamic_shape=enabled))
        add("RunOptions experimental_xla_options XLAOptions(use_spmd_for_xla_partitioning=%s)" % enabled, 4, 2,
            steps(lambda x: x + 1., (4,), experimental_xla_options=tpu.XLAOptions(use_spmd_for_xla_partitioning=enabled)))
    add("input with unknown batch", 4, 2, steps(lambda x: tf.reduce_sum(x), (None,)))
    add("input with unknown batch, default RunOptions", 2, 1, steps(lambda x: None, (None,)))
    add("input with unknown batch of rank 2", 4, 2, steps(lambda x: tf.reduce_sum(x), (None, 3)))
    add("input with unknown batch, 1 replica", 1, 2, steps(lambda x: tf.reduce_sum(x), (None,)))
    add("input with unknown batch and bucketizing, RunOptions experimental_bucketizing_dynamic_shape=True", 4, 2, steps(lambda x: tf.reduce_sum(x), (None,), experimental_bucketizing_dynamic_shape=True))
    add("input with unknown rank", 4, 2, steps(lambda x: None, None))


VALUES = {
    "tensor": ("", ", tensor value", lambda: own()),
    "float": ("the python float 3.0 ", "", lambda: 3.),
    "int": ("the python int 3 ", "", lambda: 3),
}


def variables(add):
    for aggregation, on_read in itertools.product(AGGREGATIONS, (False, True)):
        kind = "ON_READ" if on_read else "mirrored"
        for op, value in (("assign", "tensor"), ("assign_add", "tensor"), ("assign_sub", "tensor"), ("assign", "float"), ("assign_add", "float"), ("assign_sub", "float"), ("assign_add", "int")):
            before, after, make = VALUES[value]

            def body(c):
                v = c.variable(aggregation, on_read)
                c.run(lambda: written(v, op, make()))
            add("%s %son a %s variable, aggregation %s%s" % (op, "of " + before if before else "", kind, aggregation, after), 2, 1, body, assigned=False)

        def read(c):
            v = c.variable(aggregation, on_read)
            c.run(lambda: nothing(v + 1.))
        add("read in run: %s variable, aggregation %s" % (kind, aggregation), 2, 1, read, assigned=False)

        def read_value(c):
            v = c.variable(aggregation, on_read)
            c.run(lambda: v.read_value() + 1.)
        add("read_value in run: %s variable, aggregation %s" % (kind, aggregation), 2, 1, read_value, assigned=False)
        for op in ("assign", "assign_add"):
            def inside(c):
                v = c.variable(aggregation, on_read)
                c.run(lambda: written(v, op, tf.constant(3.)))

            def outside(c):
                v = c.variable(aggregation, on_read)
                y = tf.constant(3.)
                c.run(lambda: written(v, op, y))
            add("%s of tf.constant(3.) made inside run, %s variable, aggregation %s" % (op, kind, aggregation), 2, 1, inside, assigned=False)
            add("%s of tf.constant(3.) made outside run, %s variable, aggregation %s" % (op, kind, aggregation), 2, 1, outside, assigned=False)

        def zero(c):
            v = c.variable(aggregation, on_read)
            c.run(lambda: written(v, "assign_add", 0.))
        add("assign_add of the python float 0.0 on a %s variable, aggregation %s" % (kind, aggregation), 2, 1, zero, assigned=False)

        def larger(c):
            v = c.variable(aggregation, on_read)
            c.run(lambda: written(v, "assign_add", own()))
        for n, p in ((4, 2), (1, 1), (8, 1)):
            add("assign_add on a %s variable, aggregation %s, tensor value, %d replica%s of %d logical device%s" % (kind, aggregation, n, "s" * (n > 1), p, "s" * (p > 1)), n, p, larger)

        def both(c):
            v = c.variable(aggregation, on_read)

            def step():
                v.assign_add(own())
                v.assign(v * 2.)
            c.run(step)
        add("assign_add then assign on a %s variable, aggregation %s, tensor value" % (kind, aggregation), 2, 1, both, assigned=False)
    scatters = ("scatter_add", "scatter_sub", "scatter_update", "scatter_mul", "scatter_div", "scatter_min", "scatter_max")
    for aggregation, op in itertools.product(AGGREGATIONS, scatters):
        def scatter(c):
            v = c.variable(aggregation, value=[1., 1., 1.])
            c.run(lambda: nothing(getattr(v, op)(tf.IndexedSlices(tf.constant([5.]), tf.constant([1])))))
        add("%s in run, aggregation %s" % (op, aggregation), 2, 1, scatter, assigned=False)
    for aggregation in AGGREGATIONS:
        def scatter_read(c):
            v = c.variable(aggregation, True, value=[1., 1., 1.])
            c.run(lambda: nothing(v.scatter_add(tf.IndexedSlices(tf.constant([5.]), tf.constant([1])))))
        add("scatter_add in run, ON_READ variable, aggregation %s" % aggregation, 2, 1, scatter_read, assigned=False)
    for dtype, aggregation in itertools.product(("int64", "int32", "float64", "bfloat16", "float16", "uint8", "int16"), ("SUM", "MEAN", "ONLY_FIRST_REPLICA", "NONE")):
        def typed(c):
            v = c.variable(aggregation, value=1, dtype=dtype)
            c.run(lambda: written(v, "assign_add", own(dtype)))
        name = "%s %s in run" % (dtype, aggregation)
        add(name + " is rejected by CrossReplicaSum" * ((dtype, aggregation) == ("int64", "SUM")), 2, 1, typed, assigned=False)

    def mixed(c):
        v = c.variable("SUM")
        other = strategy_of(2, 1)
        other.run(lambda: nothing(v.assign_add(1.)))
    add("a variable of another strategy in run", 4, 2, mixed)

    def wrong(c):
        v = c.variable("SUM")
        c.run(lambda: written(v, "assign_add", tf.constant([1., 2.])))
    add("assign_add of a tensor of another shape, mirrored variable, aggregation SUM", 2, 1, wrong, assigned=False)

    def dtype(c):
        v = c.variable("SUM")
        c.run(lambda: written(v, "assign_add", own("int32")))
    add("assign_add of an int32 tensor, mirrored variable of float32, aggregation SUM", 2, 1, dtype, assigned=False)


def others(add):
    for aggregation in AGGREGATIONS:
        for op in ("assign", "assign_add"):
            def write_split(c):
                v = c.variable(aggregation)
                c.run(lambda: written(v, op, own()))
            add("%s on a SPMD variable in run, aggregation %s" % (op, aggregation), 2, 4, write_split, spmd=True)

        def read_split(c):
            v = c.variable(aggregation)
            c.run(lambda: v.read_value() + 1.)
        add("read_value on a SPMD variable in run, aggregation %s" % aggregation, 2, 4, read_split, spmd=True)

        def two(c):
            v, w = c.variable(aggregation), c.variable(aggregation)

            def step():
                v.assign(own())
                w.assign(own())
            c.run(step)
        add("two variables assigned in run, aggregation %s" % aggregation, 4, 2, two)

        def returned(c):
            v = c.variable(aggregation)
            c.run(lambda: v.assign(own()) + 1.)
        add("assign returns the new value: mirrored variable, aggregation %s, tensor value" % aggregation, 4, 2, returned)

    def scatter_split(c):
        v = c.variable("NONE", value=[1., 1., 1., 1.])
        c.run(lambda: nothing(v.scatter_add(tf.IndexedSlices(tf.constant([5.]), tf.constant([1])))))
    add("scatter_add on a SPMD variable in run, aggregation NONE", 2, 4, scatter_split, spmd=True)
    for op in ("SUM", "MEAN"):
        add("all_reduce %s inside tf.while_loop" % op, 4, 2, steps(
            lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, context().all_reduce(op, y)), (0, x))[1]))
        add("all_reduce %s inside tf.cond" % op, 4, 2, steps(lambda x: tf.cond(x[0] > 0, lambda: context().all_reduce(op, x), lambda: x)))
        add("reduce %s of the result of run" % op, 4, 2, lambda c: c.s.reduce(op, c.run(lambda x: x + 1., c.input()), axis=None))
    add("gather of the result of run", 4, 2, lambda c: c.s.gather(c.run(lambda x: x + 1., c.input()), axis=0))
    add("fn is a tf.function", 4, 2, lambda c: c.run(tf.function(lambda x: x + 1.), c.input()))
    add("a slice of 8 with 3 replicas", 3, 2, steps(lambda x: x + 1.))


def written(v, op, value):
    getattr(v, op)(value)


def nothing(_):
    return None
