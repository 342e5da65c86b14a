"""Cases of other dtypes, shapes, components and numbers of replicas than the other parts have."""

import numpy as np
import tensorflow as tf

from common import attempt, mirror, per_replica, replicas, show, strategy_of
from variables_cases import AGGREGATIONS, ON_READ, make, on_read, parts, replica_id

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
BOTH = ("mirrored-2", "mirrored-3", "tpu-host-2", "tpu-host-3", "mirrored-1", "tpu-host-1")
FLOATS = ("float16", "bfloat16", "float64", "float32")
INTS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


def both(s, x, axis):
    axis = tuple(axis) if isinstance(axis, list) else axis
    return {"SUM": attempt(lambda: s.reduce("SUM", x, axis)), "MEAN": attempt(lambda: s.reduce("MEAN", x, axis))}


def values(cases):
    for strategy in BOTH:
        s = strategy_of(strategy)
        n = replicas(s)
        mirrored = strategy.startswith("mirrored")
        for d in FLOATS:
            v = [[1.5, 2.25], [0.5, 4.0], [8.0, 0.125]][:n]
            for axis in (None, 0) if mirrored else (None,):
                cases.add("reduce", "vectors of %s, axis %s" % (d, axis), strategy, {"values": v, "axis": axis, "dtype": d}, both(s, per_replica(s, v, d), axis))
            v = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]], [[7.0, 8.0], [9.0, 1.0], [2.0, 3.0]]][:n]
            if mirrored:
                for axis in (0, [0, 1], [1], -2, [-1, -2]):
                    cases.add("reduce", "2-D partial of %s, axis %s" % (d, axis), strategy, {"values": v, "axis": axis, "dtype": d}, both(s, per_replica(s, v, d), axis))
                if n > 1:
                    cases.add("reduce", "2-D partial of %s, axis 1" % d, strategy, {"values": v, "axis": 1, "dtype": d}, both(s, per_replica(s, v, d), 1))
        for d in INTS:
            v = [[3, 4], [5, 7], [9, 2]][:n]
            for op in ("SUM", "MEAN"):
                for axis in (None, 0) if mirrored else (None,):
                    def f():
                        out = s.reduce(op, per_replica(s, v, d), axis)
                        return {"dtype": out.dtype.name, "value": show(out)}
                    cases.add("reduce", "integer %s of vectors, axis %s (%s)" % (op, axis, d), strategy, {"values": v, "dtype": d, "axis": axis}, attempt(f))
        v = [[True, False], [True, True], [False, False]][:n]
        cases.add("reduce", "bools", strategy, {"values": v, "dtype": "bool", "axis": None}, both(s, per_replica(s, v, "bool"), None))
        for d in FLOATS + ("int32", "uint8", "int64"):
            v = [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]][:n]
            for axis in (0, -2):
                cases.add("gather", "matrices of %s, axis %d" % (d, axis), strategy, {"values": v, "axis": axis, "dtype": d}, attempt(lambda: s.gather(per_replica(s, v, d), axis)))
        v = [[[[1.0], [2.0]]], [[[3.0], [4.0]]], [[[5.0], [6.0]]]][:n]
        for axis in (0, 1, 2, -1, 3, -4) if n > 1 else (0, 1, 2, -1):
            cases.add("gather", "3-D, axis %d" % axis, strategy, {"values": v, "axis": axis}, attempt(lambda: s.gather(per_replica(s, v, "float32"), axis)))
        v = [[True, False], [True], [False, False, True]][:n]
        cases.add("gather", "bools, axis 0", strategy, {"values": v, "axis": 0, "dtype": "bool"}, attempt(lambda: s.gather(per_replica(s, v, "bool"), 0)))
        m = mirror(s, [1., 2.])
        cases.add("reduce", "Mirrored vectors, axis None", strategy, {"value": {"Mirrored": [[1.0, 2.0]] * n}, "axis": None}, both(s, m, None))
        if mirrored:
            cases.add("reduce", "Mirrored vectors, axis 0", strategy, {"value": {"Mirrored": [[1.0, 2.0]] * n}, "axis": 0}, both(s, m, 0))
            for a in (1, -3):
                cases.add("reduce", "axis out of range, axis %d" % a, strategy, {"values": [[1.0], [2.0], [3.0]][:n], "axis": a}, both(s, per_replica(s, [[1.], [2.], [3.]][:n]), a))
        e = s.extended
        w = make(s, 9.)
        x = [[1.0, 2.0], [3.0, 5.0], [4.0, 0.5]][:n]
        for op in ("SUM", "MEAN"):
            cases.add("batch_reduce_to", "three pairs, " + op, strategy, {"values": [x, x, x]},
                      attempt(lambda: inside(s, lambda: e.batch_reduce_to(op, [(per_replica(s, x), w), (per_replica(s, x), per_replica(s, x)), (per_replica(s, x), w)]))))
        cases.add("reduce_to", "vectors to a variable / to itself / to one device", strategy, {"value": x},
                  {"to_variable": attempt(lambda: inside(s, lambda: e.reduce_to("SUM", per_replica(s, x), w))),
                   "to_itself": attempt(lambda: inside(s, lambda: (lambda p: e.reduce_to("MEAN", p, p))(per_replica(s, x))))})
        cases.add("broadcast_to", "another number", strategy, {"value": -2.5},
                  {"python": attempt(lambda: inside(s, lambda: e.broadcast_to(-2.5, w))), "tensor": attempt(lambda: inside(s, lambda: e.broadcast_to(tf.constant(-2.5), w)))})
        for label, x in (("list", [1., 2., 3.][:n]),):
            nest = [per_replica(s, x), {"k": per_replica(s, x)}]
            cases.add("local_results", "nest of lists and dicts", strategy, {"value": {"a": x, "b": {"c": x, "d": 1.0}}},
                      attempt(lambda: s.experimental_local_results({"a": nest[0], "b": {"c": nest[1]["k"], "d": 1.0}})))


def inside(s, f):
    with s.scope():
        return f()


def rid():
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def collectives(cases):
    for strategy in ("mirrored-1", "mirrored-2", "mirrored-3"):
        s = strategy_of(strategy)
        rc = tf.distribute.get_replica_context
        for value, f in (("2*id+1", lambda i: 2 * i + 1), ("[[id, 1], [2, id*id]]", lambda i: tf.stack([tf.stack([i, tf.ones_like(i)]), tf.stack([2 * tf.ones_like(i), i * i])])),
                         ("[id]", lambda i: tf.stack([i])), ("id/2", lambda i: i / 2), ("-id", lambda i: -i), ("(id+1)*(id-3)", lambda i: (i + 1) * (i - 3))):
            out = {}
            for op in (SUM, MEAN):
                out[op.name] = attempt(lambda: s.run(lambda: rc().all_reduce(op, f(tf.cast(rid(), tf.float32)))))
            cases.add("all_reduce", "expression " + value, strategy, {"value": value}, out)
        for value, f, axis in (("[[id, 1], [2, id]]", lambda i: tf.stack([tf.stack([i, 1]), tf.stack([2, i])]), 0), ("[[id, 1], [2, id]]", lambda i: tf.stack([tf.stack([i, 1]), tf.stack([2, i])]), -1),
                               ("[[[id]], [[id+5]]]", lambda i: tf.stack([[[i]], [[i + 5]]]), 2), ("[[[id]], [[id+5]]]", lambda i: tf.stack([[[i]], [[i + 5]]]), -2),
                               ("[id]", lambda i: tf.stack([i]), 1), ("[id]", lambda i: tf.stack([i]), -1)):
            cases.add("all_gather", "%s, axis %d" % (value, axis), strategy, {"value": value, "axis": axis}, attempt(lambda: s.run(lambda: rc().all_gather(f(rid()), axis))))
        cases.add("merge_call", "another number: three + id, summed", strategy, {"three": -7}, attempt(lambda: merged(s, -7)))


def merged(s, three):
    def fn():
        x = tf.constant(three) + rid()
        return tf.distribute.get_replica_context().merge_call(lambda st, v: st.reduce("SUM", v, None), args=(x,)) + x
    return s.run(fn)


def variables(cases):
    for strategy in BOTH:
        s = strategy_of(strategy)
        n = replicas(s)
        mirrored = strategy.startswith("mirrored")
        for agg in AGGREGATIONS:
            for d in ("float64", "float16", "bfloat16", "uint8", "int16", "bool"):
                ops = ("assign",) if d == "bool" else ("assign", "assign_add", "assign_sub")
                if agg == "MEAN" and not d.startswith(("float", "bf")):
                    cases.add("variable", "%s MEAN" % d, strategy, {}, attempt(lambda: make(s, tf.cast(1, d), agg)))
                    continue
                if mirrored and d != "bool":
                    out = {}
                    for op in ops:
                        def f():
                            v = make(s, tf.constant([10, 20], d), agg)
                            returned = show(s.run(lambda: getattr(v, op)(tf.cast(tf.stack([replica_id() + 1, 2 * replica_id() + 2]), d))))
                            return {"components": parts_of(v), "returned": returned}
                        out[op] = attempt(f)
                    cases.add("mirrored_write", "replica context, vectors of %s, aggregation %s" % (d, agg), strategy,
                              {"initial": [10, 20], "value": "[id+1, 2*id+2]", "dtype": d}, out)
                comps = {"bool": [True, False, True]}.get(d, [3, 5, 8])[:n]
                v = on_read(s, comps, agg, d)
                cases.add("sync_on_read", "cross-replica read of components of %s, aggregation %s" % (d, agg), strategy, {"components": comps, "dtype": d},
                          {k: attempt(f) for k, f in (("read_value", v.read_value), ("value", v.value), ("numpy", v.numpy))})
                if d != "bool":
                    out = {}
                    for op in ops:
                        def f():
                            v = on_read(s, comps, agg, d)
                            with s.scope():
                                r = getattr(v, op)(tf.cast(7, d))
                            return {"components": parts_of(v), "returned": show(r)}
                        out[op] = attempt(f)
                    cases.add("sync_on_read", "cross-replica write of 7 over components of %s, aggregation %s" % (d, agg), strategy, {"components": comps, "value": 7, "dtype": d}, out)
            comps = [[1., 2.], [3., 5.], [-4., 0.5]][:n]
            v = on_read(s, comps, agg)
            cases.add("sync_on_read", "cross-replica read of vectors, aggregation " + agg, strategy, {"components": comps},
                      {k: attempt(f) for k, f in (("read_value", v.read_value), ("value", v.value), ("numpy", v.numpy))})
            cases.add("sync_on_read", "read in update context of vectors, aggregation " + agg, strategy, {"components": comps},
                      attempt(lambda: inside(s, lambda: s.extended.update(v, lambda x: x.read_value(), group=False))))
            for value in (5, -3.5, [1.0, 2.0]):
                out = {}
                for op in ("assign", "assign_add", "assign_sub"):
                    def f():
                        v = make(s, [10., 20.], agg)
                        with s.scope():
                            r = getattr(v, op)(value if isinstance(value, list) else [float(value)] * 2)
                        return {"components": parts(v), "returned_type": type(r).__name__}
                    out[op] = attempt(f)
                if isinstance(value, list):
                    cases.add("mirrored_write", "cross-replica, plain vector, aggregation %s" % agg, strategy, {"initial": [10.0, 20.0], "value": value}, out)
            out = {}
            for op in ("assign", "assign_add", "assign_sub"):
                def f():
                    v = make(s, 10., agg)
                    with s.scope():
                        r = getattr(v, op)(make(s, -6.5))
                    return {"components": parts(v), "returned_type": type(r).__name__}
                out[op] = attempt(f)
            cases.add("mirrored_write", "cross-replica, value is another mirrored variable, aggregation " + agg, strategy, {"initial": 10.0, "value": "mirrored -6.5"}, out)
            def pr():
                v = make(s, [1., 1.], agg)
                with s.scope():
                    r = v.assign(per_replica(s, comps))
                return {"components": parts(v), "returned_type": type(r).__name__}
            cases.add("mirrored_write", "cross-replica, PerReplica vectors, aggregation " + agg, strategy, {"initial": [1.0, 1.0], "value": {"PerReplica": comps}}, {"assign": attempt(pr)})
            if mirrored:
                for value, make_value in ((-2.5, lambda: -2.5), (4.0, lambda: 4.0), ("tf.constant(-3.5) made in each replica", lambda: tf.constant(-3.5)), ("id*id-2", lambda: tf.cast(replica_id() * replica_id() - 2, tf.float32))):
                    out = {}
                    for op in ("assign", "assign_add", "assign_sub"):
                        def f():
                            v = make(s, 10., agg)
                            returned = show(s.run(lambda: getattr(v, op)(make_value())))
                            return {"components": parts(v), "returned": returned}
                        out[op] = attempt(f)
                    cases.add("mirrored_write", "replica context, value %s, aggregation %s" % (value, agg), strategy, {"initial": 10.0, "value": value}, out)
            if mirrored and (n > 1):
                for index, text, value in ((2, "2*id+3", lambda: 2. * tf.cast(replica_id(), tf.float32) + 3), (0, "-1.5", lambda: tf.constant(-1.5))):
                    out = {}
                    for op in ("add", "sub", "mul", "div", "update", "min", "max"):
                        def f():
                            v = make(s, [1., 2., 3., 4.], agg)
                            s.run(lambda: getattr(v, "scatter_" + op)(tf.IndexedSlices(tf.reshape(value(), [1]), tf.constant([index]))))
                            return parts(v)
                        out["scatter_" + op] = attempt(f)
                    cases.add("scatter", "mirrored, replica context, index %d, value %s, aggregation %s" % (index, text, agg), strategy, {"initial": [1., 2., 3., 4.]}, out)
            for comps in ([1.5, 2.5, 6.0], [[1.0, 2.0], [3.0, 5.0], [7.0, 9.0]], [-4.0, 4.0, 0.0]):
                comps = comps[:n]
                v = on_read(s, comps, agg)
                cases.add("checkpoint", "ON_READ, aggregation %s: save components %s, restore" % (agg, comps), strategy, {"components": comps},
                          {"same": attempt(lambda: trip(v, lambda: make(s, tf.zeros_like(tf.constant(comps[0])), agg, synchronization=ON_READ))),
                           "into_3_replicas": attempt(lambda: trip(v, lambda: make(strategy_of(strategy.rsplit("-", 1)[0] + "-3"), tf.zeros_like(tf.constant(comps[0])), agg, synchronization=ON_READ))),
                           "into_1_replicas": attempt(lambda: trip(v, lambda: make(strategy_of(strategy.rsplit("-", 1)[0] + "-1"), tf.zeros_like(tf.constant(comps[0])), agg, synchronization=ON_READ))),
                           "into_plain_variable": attempt(lambda: trip(v, lambda: tf.Variable(tf.zeros_like(tf.constant(comps[0])))))})
        e = s.extended
        for value, agg in (([3., 4., 9.], "NONE"), ([3., 4., 9.], "SUM"), ([2., 2., 2.], "NONE")):
            def f():
                v = make(s, 5., agg)
                with s.scope():
                    e.update(v, lambda v, x: v.assign_add(x), args=(per_replica(s, value[:n]),))
                return parts(v)
            cases.add("update", "PerReplica args %s, aggregation %s" % (value[:n], agg), strategy, {"args": "PerReplica(%s)" % ",".join("%d" % x for x in value[:n])}, attempt(f))
        def g():
            v = make(s, 2.)
            with s.scope():
                r = e.update(v, lambda v, x: v.assign_add(x), args=(3.,))
            return [show(r), parts(v)]
        cases.add("update", "assign_add(3.0) from 2.0; grouped result", strategy, {"initial": 2.0}, attempt(g))
        for d in ("float64", "int64", "bool", "uint8", "float16"):
            for init in ([[True, False], [True, True]], True) if d == "bool" else ([[1, 0], [1, 1]], 1, []):
                def h():
                    with s.scope():
                        v = tf.Variable(tf.constant(init, d), name="weights/kernel")
                    return {"name": v.name, "names": [x.name for x in v.values], "trainable": v.trainable, "dtype": v.dtype.name, "shape": str(v.shape),
                            "values": parts_of(v), "aggregation": v.aggregation.name, "synchronization": v.synchronization.name}
                cases.add("variable", "creation, %s" % d, strategy, {"init": init, "name": "weights/kernel", "dtype": d}, attempt(h))


def parts_of(v):
    return [show(x.numpy()) for x in v.values]


def trip(v, into):
    import os
    import tempfile
    from tensorflow.python.distribute import values as values_lib
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(v=v).write(os.path.join(folder, "c"))
        saved = tf.train.load_checkpoint(path).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
        w = into()
        tf.train.Checkpoint(v=w).read(path).assert_consumed()
        many = isinstance(w, values_lib.DistributedVariable)
        return {"saved": show(saved), "restored": parts(w) if many else show(w), "cross_read": show(w.read_value() if many else w.numpy())}


def more(cases):
    for strategy in ("mirrored-2", "mirrored-3", "tpu-host-2", "tpu-host-3"):
        s = strategy_of(strategy)
        n = replicas(s)
        for name, v in (("vectors and matrices", [[1.], [[2.]], [[3.]]]), ("scalars and vectors", [1., [2.], 3.])):
            v = v[:n]
            cases.add("gather", "of different ranks, %s, axis 0" % name, strategy, {"values": v, "axis": 0}, attempt(lambda: s.gather(per_replica(s, v, tf.float32), 0)))
            cases.add("reduce", "of different ranks, %s" % name, strategy, {"values": v, "axis": None}, both(s, per_replica(s, v, tf.float32), None))
        v = [[[1., 2.]], [[3., 4., 5.]], [[6.]]][:n]
        for axis in (0, 1):
            cases.add("gather", "widths that differ, axis %d" % axis, strategy, {"values": v, "axis": axis}, attempt(lambda: s.gather(per_replica(s, v, tf.float32), axis)))
        cases.add("reduce", "widths that differ", strategy, {"values": v, "axis": None}, both(s, per_replica(s, v, tf.float32), None))
        if strategy.startswith("mirrored"):
            cases.add("reduce", "widths that differ, axis 0", strategy, {"values": v, "axis": 0}, both(s, per_replica(s, v, tf.float32), 0))
            cases.add("reduce", "widths that differ, axis 1", strategy, {"values": v, "axis": 1}, both(s, per_replica(s, v, tf.float32), 1))
        e = s.extended
        given = per_replica(s, [3., 7., 1.][:n])
        args = "PerReplica(%s)" % ",".join("%d" % x for x in [3, 7, 1][:n])
        w = make(s, 1.)
        cases.add("non_slot", "update_non_slot with PerReplica args", strategy, {"args": args},
                  attempt(lambda: inside(s, lambda: e.update_non_slot(e.non_slot_devices([w]), lambda x: x, args=(given,)))))
        cases.add("non_slot", "update_non_slot with PerReplica args, group=False", strategy, {"args": args},
                  attempt(lambda: inside(s, lambda: e.update_non_slot(e.non_slot_devices([w]), lambda x: x, args=(given,), group=False))))


def run(cases):
    for part in (values, collectives, variables, more):
        part(cases)
