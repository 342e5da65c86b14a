"""Cases of values: reduce, gather, collectives, results, nests."""

import numpy as np
import tensorflow as tf

from common import attempt, mirror, per_replica, replicas, show, strategy_of

F32 = tf.float32
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def both(s, x, axis):
    axis = tuple(axis) if isinstance(axis, list) else axis
    return {"SUM": attempt(lambda: s.reduce("SUM", x, axis)), "MEAN": attempt(lambda: s.reduce("MEAN", x, axis))}


def reduce_cases(cases):
    def case(name, strategy, values, axis, dtype=F32):
        s = strategy_of(strategy)
        cases.add("reduce", name, strategy, {"values": values, "axis": axis}, both(s, per_replica(s, values, dtype), axis))

    vectors = {1: [[0., 1., 2., 3.]], 2: [[0., 1., 2., 3.], [4., 5., 6., 7.]], 4: [[1., 2.], [3., 4.], [5., 6.], [7., 9.]]}
    for n in (1, 2, 4):
        case("vectors", "mirrored-%d" % n, vectors[n], None)
        case("vectors", "tpu-host-%d" % n, vectors[n], None)
        case("vectors, axis 0", "mirrored-%d" % n, vectors[n], 0)
        case("scalars", "mirrored-%d" % n, [float(i + 1) for i in range(n)], None)
        case("scalars", "tpu-host-%d" % n, [float(i + 1) for i in range(n)], None)
        matrices = [[[1. + r, 2.], [3., 4. * r]] for r in range(n)]
        for axis in (None, 0, 1, -1, -2, [0, 1], [0], [1, 0], [-1, 0], 2, -3, [0, 0], [0, -2]):
            case("2-D, axis %s" % axis, "mirrored-%d" % n, matrices, axis)
        cubes = [[[[1. + r, 2.], [3., 4. * r]], [[5., 6.], [7., 8.]]] for r in range(n)]
        for axis in (2, -1, [0, 2], [1, 2], [0, 1, 2]):
            case("3-D, axis %s" % axis, "mirrored-%d" % n, cubes, axis)
    four = [[0., 1.], [2., 3.], [4.], []]
    case("partial batch 2+2+1+0, axis 0 (mean of means would be 2.33)", "mirrored-4", four, 0)
    case("partial batch 2+2+1+0, no axis", "mirrored-4", four, None)
    case("partial batch [4]+[0], axis 0", "mirrored-2", [[0., 1., 2., 3.], []], 0)
    case("partial batch [4]+[2], no axis", "tpu-host-2", [[0., 1., 2., 3.], [4., 5.]], None)
    case("partial batch [1]+[1], axis 0", "mirrored-2", [[5.], [7.]], 0)
    case("scalars with axis 0", "mirrored-2", [1., 2.], 0)
    case("empty list of axes", "mirrored-2", [[1., 2.], [3., 4.]], [])
    for n, kind in ((1, "mirrored"), (2, "mirrored"), (4, "mirrored"), (2, "tpu-host"), (4, "tpu-host"), (1, "tpu-host")):
        strategy = "%s-%d" % (kind, n)
        s = strategy_of(strategy)
        values = [1, 2, 5, 9][:n]
        for d in ("int32", "int64"):
            for op in ("MEAN", "SUM"):
                def run(axis, values=values, d=d, op=op):
                    def f():
                        out = s.reduce(op, per_replica(s, values, d), axis)
                        return {"dtype": out.dtype.name, "value": show(out)}
                    return attempt(f)
                name = "integer %s, axis None" % op + ("" if d == "int32" else " (%s)" % d)
                cases.add("reduce", name, strategy, {"values": values, "dtype": d}, run(None))
                if kind == "mirrored":
                    vs = [[1, 2], [4], [7, 7, 7], [3]][:n]
                    cases.add("reduce", "integer %s, axis 0" % op + ("" if d == "int32" else " (%s)" % d), strategy,
                              {"values": vs, "dtype": d}, run(0, vs))
        for text in ("SUM", "sum", "Sum", "mean", "MEAN", "MAX", "min", "PROD"):
            cases.add("reduce", "reduce_op given as string " + text, strategy, {"values": [1., 2., 3., 4.][:n], "op": text},
                      attempt(lambda: s.reduce(text, per_replica(s, [1., 2., 3., 4.][:n]), None)))
        for axis in ([None, 0] if kind == "mirrored" else [None]):
            a = " with axis" if axis == 0 else " without axis"
            cases.add("reduce", "reduce_op of another type" + a, strategy, {"op": "tf.VariableAggregation.SUM", "axis": axis},
                      attempt(lambda: s.reduce(tf.VariableAggregation.SUM, per_replica(s, [[1.], [2.], [3.], [4.]][:n]), axis)))
        cases.add("reduce", "one tensor, not per-replica", strategy, {"value": 3.0, "axis": None}, both(s, tf.constant(3.), None))
        cases.add("reduce", "one python number, not per-replica", strategy, {"value": 3.0, "axis": None}, both(s, 3.0, None))
        cases.add("reduce", "one numpy zero, not per-replica", strategy, {"value": 0.0, "axis": None}, both(s, np.float32(0), None))
        if kind == "mirrored":
            cases.add("reduce", "one tensor, axis 0: run() hands the same tensor to every replica", strategy,
                      {"value": [1., 2.], "axis": 0}, both(s, tf.constant([1., 2.]), 0))
        a, b = [1., 2., 3., 4.][:n], [3., 4., 5., 6.][:n]
        cases.add("reduce", "nest of per-replica values", strategy, {"value": {"a": a, "b": b}},
                  attempt(lambda: s.reduce("SUM", {"a": per_replica(s, a), "b": per_replica(s, b)}, None)))
        cases.add("reduce", "result is a plain tensor, not PerReplica", strategy, {},
                  type(s.reduce("SUM", per_replica(s, a), None)).__name__)
        with s.scope():
            v = tf.Variable(3.)
            r = tf.Variable(3., synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM)
        out = {k: attempt(lambda: s.reduce(k, v, None)) for k in ("MEAN", "SUM")}
        cases.add("reduce", "mirrored variable", strategy, {"value": 3.0}, out)
        m = both(s, mirror(s, 3.), None)
        cases.add("reduce", "Mirrored value", strategy, {"value": {"Mirrored": [3.0] * n}}, m)
        out = {k: attempt(lambda: s.reduce(k, r, None)) for k in ("MEAN", "SUM")}
        cases.add("reduce", "sync-on-read variable", strategy, {"value": 3.0}, out)
        other = strategy_of("mirrored-2" if strategy != "mirrored-2" else "mirrored-4")
        def inside():
            with other.scope():
                return s.reduce("SUM", per_replica_outside, None)
        per_replica_outside = per_replica(s, a)
        cases.add("reduce", "called inside another strategy scope", strategy, {}, attempt(inside))
        if kind == "mirrored":
            x = per_replica(s, a)
            cases.add("reduce", "called in replica context", strategy, {}, attempt(lambda: s.run(lambda: s.reduce("SUM", x, None))))
            vs = [[0., 1., 2., 3.], [4., 5.], [6.], [7., 8.]][:n]
            x = per_replica(s, vs)
            means = per_replica(s, [sum(v) / len(v) for v in vs])
            cases.add("reduce", "mean of means is not MEAN axis 0", strategy, {"values": vs},
                      {"MEAN_axis0": attempt(lambda: s.reduce("MEAN", x, 0)), "mean_of_means": attempt(lambda: s.reduce("MEAN", means, None))})
            for d in ("float16", "float64", "bfloat16"):
                vs = [1.5, 2.5, 3., 4.][:n]
                cases.add("reduce", d, strategy, {"values": vs, "dtype": d, "axis": None}, both(s, per_replica(s, vs, d), None))
            vs = [[] for _ in range(n)]
            cases.add("reduce", "empty on every replica, MEAN axis 0 (0/0)", strategy, {"values": vs}, both(s, per_replica(s, vs, F32), 0))
            for axis in ("0", 0.5, True):
                vs = [[1.], [2.], [3.], [4.]][:n]
                cases.add("reduce", "axis not an int", strategy, {"values": vs, "axis": axis}, both(s, per_replica(s, vs), axis))


def gather_cases(cases):
    sets = {
        "vectors": lambda n: [[float(r), r + 10.] for r in range(n)],
        "vectors of different lengths": lambda n: [[float(r)] * (r + 1) for r in range(n)],
        "with an empty one": lambda n: [[] if r == 0 else [float(r)] for r in range(n)],
        "matrices": lambda n: [[[1. + r, 2.], [3., 4.]] for r in range(n)],
        "matrices of different rows": lambda n: [[[1. + r, 2.]] * (r + 1) for r in range(n)],
        "scalars": lambda n: [float(r + 1) for r in range(n)],
    }
    for strategy in ("mirrored-1", "mirrored-2", "mirrored-4", "tpu-host-2", "tpu-host-4"):
        s = strategy_of(strategy)
        n = replicas(s)
        for label, make in sets.items():
            for axis in (0, 1, -1):
                values = make(n)
                cases.add("gather", "%s, axis %d" % (label, axis) if label != "scalars" else "scalars", strategy, {"values": values, "axis": axis},
                          attempt(lambda: s.gather(per_replica(s, values, F32), axis)))
        cases.add("gather", "one tensor, not per-replica, axis 0", strategy, {"value": [1., 2.]}, attempt(lambda: s.gather(tf.constant([1., 2.]), 0)))
        values = [[1 + r, 2] for r in range(n)]
        cases.add("gather", "int32, axis 0", strategy, {"values": values, "axis": 0}, attempt(lambda: s.gather(per_replica(s, values), 0)))
        if strategy.startswith("mirrored"):
            x = per_replica(s, sets["vectors"](n))
            cases.add("gather", "in a replica context", strategy, {}, attempt(lambda: s.run(lambda: s.gather(x, 0))))
            sl = tf.IndexedSlices(tf.constant([[1.]]), tf.constant([0]), tf.constant([2, 1]))
            sl = s.run(lambda: tf.IndexedSlices(tf.constant([[1.]]), tf.constant([0]), tf.constant([2, 1])))
            cases.add("gather", "IndexedSlices", strategy, {}, attempt(lambda: s.gather(sl, 0)))


def collective_cases(cases):
    for n in (1, 2, 4):
        strategy = "mirrored-%d" % n
        s = strategy_of(strategy)
        rc = tf.distribute.get_replica_context

        def rid():
            return tf.cast(rc().replica_id_in_sync_group, F32)

        def reduced(op, f):
            return attempt(lambda: s.run(lambda: rc().all_reduce(op, f())))
        out = {"SUM": reduced(SUM, lambda: rid() + 1), "MEAN": reduced(MEAN, lambda: rid() + 1), "string_op": reduced("sum", lambda: rid() + 1)}
        cases.add("all_reduce", "replica id + 1", strategy, {"value": "replica_id+1"}, out)
        for op in (SUM, MEAN):
            cases.add("all_reduce", "nest" if op == SUM else "nest, MEAN", strategy, {"value": {"a": "id", "b": "[id,10]"}},
                      reduced(op, lambda: {"a": rid(), "b": tf.stack([rid(), 10.])}))
        cases.add("all_reduce", "vector", strategy, {"value": "[id, id+10]"}, reduced(SUM, lambda: tf.stack([rid(), rid() + 10])))
        cases.add("all_reduce", "list", strategy, {"value": ["id", "[id,10]"]}, reduced(SUM, lambda: [rid(), tf.stack([rid(), 10.])]))
        for name, op, x, y in (
                ("gradient of an all-sum is an all-sum of the incoming gradients", SUM, "id+1", "all_sum(x*x)*(id+1)"),
                ("gradient of an all-mean is an all-mean of the incoming gradients", MEAN, "id+1", "all_mean(x*x)*(id+1)"),
                ("gradient of a plain all-sum", SUM, "id+1", "all_sum(x*x)")):
            def fn():
                v = rid() + 1
                with tf.GradientTape() as t:
                    t.watch(v)
                    z = rc().all_reduce(op, v * v)
                    if "(id+1)" in y:
                        z = z * (rid() + 1)
                return z, t.gradient(z, v)
            a, b = s.run(tf.function(fn))
            cases.add("all_reduce", name, strategy, {"x": x, "y": y}, {"y": show(a), "dy_dx": show(b)})
        cases.add("all_reduce", "in cross-replica context", strategy, {}, attempt(lambda: scoped(s, lambda: rc().all_reduce(SUM, tf.constant(1.)))))
        for text in ("MAX", "min"):
            cases.add("all_reduce", "string op " + text, strategy, {"value": "id", "op": text}, reduced(text, rid))

        def gathered(f, axis):
            return attempt(lambda: s.run(lambda: rc().all_gather(f(), axis)))

        def iid():
            return rc().replica_id_in_sync_group
        cases.add("all_gather", "axis 0", strategy, {"value": "[id, id+10]"}, gathered(lambda: tf.stack([iid(), iid() + 10]), 0))
        cases.add("all_gather", "axis 1", strategy, {"value": "[[id], [id+10]]"}, gathered(lambda: tf.stack([[iid()], [iid() + 10]]), 1))
        cases.add("all_gather", "axis -1", strategy, {"value": "[[id, 5], [id+10, 6]]"}, gathered(lambda: tf.stack([[iid(), 5], [iid() + 10, 6]]), -1))
        cases.add("all_gather", "nest, axis 0", strategy, {"value": {"a": "[id]", "b": "[id, 7]"}},
                  gathered(lambda: {"a": tf.stack([iid()]), "b": tf.stack([iid(), 7])}, 0))
        cases.add("all_gather", "scalar", strategy, {"value": "id"}, gathered(iid, 0))
        values = [[r] * (r + 1) for r in range(n)]
        cases.add("all_gather", "different lengths, axis 0", strategy, {"values": values}, gathered(lambda: tf.constant(values[int(iid())]), 0))
        rows = [[[r] * 2] * (r + 1) for r in range(n)]
        cases.add("all_gather", "different lengths on another axis, axis 1", strategy, {"values": rows}, gathered(lambda: tf.constant(rows[int(iid())]), 1))
        cases.add("all_reduce", "integer MEAN", strategy, {"value": "replica_id+1"}, reduced(MEAN, lambda: iid() + 1))
        cases.add("all_gather", "IndexedSlices", strategy, {}, gathered(lambda: tf.IndexedSlices(tf.constant([[1.]]), tf.constant([0]), tf.constant([2, 1])), 0))


def scoped(s, fn):
    with s.scope():
        return fn()


def nest_cases(cases):
    import collections
    Pair = collections.namedtuple("Pair", "x y")
    for n in (1, 2, 4):
        strategy = "mirrored-%d" % n
        s = strategy_of(strategy)

        def rid():
            return tf.distribute.get_replica_context().replica_id_in_sync_group
        one = tf.constant(7.)

        def case(name, fn, inputs=None):
            cases.add("run_return", name, strategy, inputs or {}, attempt(lambda: s.run(fn)))
        case("the very same object is returned unwrapped", lambda: one)
        case("equal but distinct objects are PerReplica", lambda: tf.constant(7.))
        case("None", lambda: None)
        case("small python ints are the same object", lambda: 5)
        case("strings", lambda: "text")
        case("a different python int on each replica", lambda: int(rid()))
        case("tuple, list, dict, namedtuple", lambda: (one, [rid() + 0], {"k": rid() * 2}, Pair(rid() + 0, one)))
        case("single replica is not wrapped" if n == 1 else "a tensor of each replica", lambda: tf.constant(7.))
        case("empty tuple and dict", lambda: ((), {}))
        case("nested lists", lambda: [[rid() + 1, [rid() + 2]], one])
        case("lists of different length", lambda: [tf.constant(1)] * (int(rid()) + 1))
        case("dicts with different keys", lambda: {str(int(rid())): 1})
        case("list and dict", lambda: [1] if int(rid()) == 0 else {"a": 1})
        case("tuple and list", lambda: (1,) if int(rid()) == 0 else [1])
        with s.scope():
            v = tf.Variable(7.)
        case("a mirrored variable", lambda: v)

        def boom():
            raise ValueError("raised in a replica")
        case("fn raises", boom)
        cases.add("run_return", "args not a list or tuple", strategy, {}, attempt(lambda: s.run(lambda x: x, args=tf.constant(1.))))
        for x in ([1., 2., 3., 4.], [5., 6., 7., 9.]):
            x = x[:n]
            cases.add("local_results", "PerReplica", strategy, {"values": x}, attempt(lambda: s.experimental_local_results(per_replica(s, x))))
        cases.add("local_results", "plain value", strategy, {"value": 5.0}, attempt(lambda: s.experimental_local_results(5.0)))
        nest = {"a": per_replica(s, x), "b": 9.0}
        cases.add("local_results", "nest with a distributed leaf is repeated per replica", strategy, {"value": {"a": x, "b": 9.0}},
                  attempt(lambda: s.experimental_local_results(nest)))
        cases.add("local_results", "nest without a distributed leaf", strategy, {"value": {"a": 1.0, "b": 9.0}},
                  attempt(lambda: s.experimental_local_results({"a": 1.0, "b": 9.0})))
        cases.add("local_results", "Mirrored", strategy, {}, attempt(lambda: s.experimental_local_results(mirror(s, 4.))))
    for strategy in ("mirrored-1", "mirrored-2", "mirrored-4", "tpu-host-1", "tpu-host-2", "tpu-host-4"):
        s = strategy_of(strategy)
        n = replicas(s)
        with s.scope():
            v = tf.Variable(1.)
            r = tf.Variable(1., synchronization=tf.VariableSynchronization.ON_READ)
        cases.add("local_results", "mirrored variable", strategy, {}, attempt(lambda: s.experimental_local_results(v)))
        cases.add("local_results", "sync-on-read variable", strategy, {}, attempt(lambda: s.experimental_local_results(r)))
        e = s.extended
        for label, w in (("mirrored", v), ("sync-on-read", r)):
            c = e.value_container(w.values[min(1, n - 1)])
            t = tf.constant(1.)
            cases.add("value_container", "component of a %s variable / container itself / unrelated tensor" % label, strategy, {},
                      {"component_gives_container": c is w, "component_gives_itself": c is w.values[min(1, n - 1)],
                       "container_gives_itself": e.value_container(w) is w, "tensor_gives_itself": e.value_container(t) is t})
        same = tf.constant(7.)
        fs = {
            "id": lambda c: c.replica_id_in_sync_group * 10, "n": lambda c: c.num_replicas_in_sync,
            "array": lambda c: np.float32(c.num_replicas_in_sync + 1 - c.replica_id_in_sync_group), "same_object_is_still_wrapped": lambda c: same,
            "tuple": lambda c: (c.replica_id_in_sync_group, same), "dict": lambda c: {"a": c.replica_id_in_sync_group}, "none": lambda c: None}
        cases.add("values_from_function", "id, n and array", strategy, {},
                  {k: attempt(lambda: s.experimental_distribute_values_from_function(f)) for k, f in fs.items()})
        cases.add("values_from_function", "nest", strategy, {},
                  attempt(lambda: s.experimental_distribute_values_from_function(lambda c: {"a": c.replica_id_in_sync_group, "b": [c.num_replicas_in_sync]})))
    cases.add("values_from_function", "default strategy gives a bare value", "default", {},
              attempt(lambda: strategy_of("default").experimental_distribute_values_from_function(lambda c: c.replica_id_in_sync_group)))


def run(cases):
    reduce_cases(cases)
    gather_cases(cases)
    collective_cases(cases)
    nest_cases(cases)
