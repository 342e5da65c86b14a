"""Cases of variables: creation, writes, scatters, sync-on-read, checkpoints."""

import os
import tempfile

import tensorflow as tf
from tensorflow.python.distribute import values as values_lib

from common import attempt, mirror, per_replica, plain, replicas, show, strategy_of

AGGREGATIONS = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
ON_READ = tf.VariableSynchronization.ON_READ
ALL = ("mirrored-1", "mirrored-2", "mirrored-4", "tpu-host-1", "tpu-host-2", "tpu-host-4")
WRITES = ("assign", "assign_add", "assign_sub")


def aggregation(name):
    return tf.VariableAggregation[name]


def replica_id():
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def parts(v):
    return [plain(x.numpy().tolist()) for x in v.values]


def make(s, value, agg="NONE", **more):
    with s.scope():
        return tf.Variable(value, aggregation=aggregation(agg), **more)


def creation(cases):
    for strategy in ALL:
        s = strategy_of(strategy)

        def described(v):
            return {"type": type(v).__name__, "names": [x.name for x in v.values], "name": v.name,
                    "devices": [x.device.split("/")[-1] for x in v.values], "values": parts(v), "trainable": v.trainable,
                    "dtype": v.dtype.name, "shape": str(v.shape), "synchronization": v.synchronization.name,
                    "aggregation": v.aggregation.name, "strategy_is": v.distribute_strategy is s,
                    "is_mirrored": v.synchronization != ON_READ}
        for init, name in (([1., 2.], "w"), ([1, 2], "w"), (3., "scalar"), ([[1., 2.], [3., 4.]], "m")):
            for agg in ("NONE", "SUM") if name == "w" else ("NONE",):
                label = "creation" if agg == "NONE" and init == [1., 2.] else "creation, %s aggregation %s" % (name, agg)
                cases.add("variable", label, strategy, {"init": init, "name": name}, described(make(s, init, agg, name=name)))
        for agg in AGGREGATIONS:
            cases.add("variable", "creation, ON_READ, aggregation " + agg, strategy, {"init": [1., 2.], "name": "w"},
                      described(make(s, [1., 2.], agg, name="w", synchronization=ON_READ)))
        calls = []

        def initial():
            calls.append(1)
            return tf.random.normal([])
        v = make(s, initial)
        cases.add("variable", "a random initializer: all replicas equal, initializer called once", strategy, {},
                  {"all_equal": len(set(parts(v))) == 1, "calls": len(calls)})
        for label, kw in (("synchronization NONE", {"synchronization": tf.VariableSynchronization.NONE}), ("synchronization invalid", {"synchronization": "bad"}),
                          ("aggregation invalid", {"aggregation": "bad"})):
            def f():
                with s.scope():
                    return tf.Variable(1., name="x", **kw).trainable
            cases.add("variable", label, strategy, {}, attempt(f))
        for d in ("int32", "int64"):
            for agg in ("MEAN",):
                cases.add("variable", "%s %s" % (d, agg), strategy, {}, attempt(lambda: make(s, tf.constant(1, d), agg, name="x").trainable))
                cases.add("variable", "ON_READ %s %s" % (d, agg), strategy, {}, attempt(lambda: make(s, tf.constant(1, d), agg, name="x", synchronization=ON_READ).trainable))
        cases.add("variable", "trainable of a sync-on-read variable", strategy, {},
                  {"on_read_default": make(s, 1., synchronization=ON_READ).trainable, "on_read_true": make(s, 1., synchronization=ON_READ, trainable=True).trainable,
                   "default": make(s, 1.).trainable})
        other = strategy_of("mirrored-2" if strategy != "mirrored-2" else "mirrored-4")

        def used(v):
            with other.scope():
                return v.assign_add(1.)
        cases.add("variable", "used inside another strategy scope", strategy, {}, attempt(lambda: used(make(s, 1.))))
        if strategy.startswith("mirrored"):
            def fn():
                return tf.Variable(tf.cast(replica_id() + 1, tf.float32), name="x")
            v = s.run(fn)
            if isinstance(v, values_lib.DistributedVariable):
                cases.add("variable", "created inside run() by all replicas: one variable, the value of replica 0", strategy, {},
                          {"type": type(v).__name__, "values": parts(v)})


def writes(cases):
    for strategy in ALL:
        s = strategy_of(strategy)
        n = replicas(s)
        shared = tf.constant(3.)
        values = {
            "per-replica value id+1": ("id+1", lambda: tf.cast(replica_id() + 1, tf.float32)),
            "the same python float 3.0 on each replica": (3.0, lambda: 3.0),
            "a fresh tensor 3.0 per replica": ("tf.constant(3.) made in each replica", lambda: tf.constant(3.)),
            "one shared tensor object": ("one tensor object 3.0", lambda: shared),
            "per-replica value 2*id-1": ("2*id-1", lambda: tf.cast(2 * replica_id() - 1, tf.float32)),
        }
        for agg in AGGREGATIONS:
            if strategy.startswith("mirrored"):
                for label, (text, value) in values.items():
                    out = {}
                    for op in WRITES if "id" in str(text) else WRITES[:2]:
                        def f():
                            v = make(s, 10., agg)
                            returned = show(s.run(lambda: getattr(v, op)(value())))
                            return {"components": parts(v), "returned": returned}
                        out[op] = attempt(f)
                    cases.add("mirrored_write", "replica context, %s, aggregation %s" % (label, agg), strategy, {"initial": 10.0, "value": text}, out)
                for d in ("int32", "int64"):
                    out = {}
                    for op in WRITES[:2]:
                        def f():
                            v = make(s, tf.constant(10, d), agg)
                            returned = show(s.run(lambda: getattr(v, op)(tf.cast(replica_id() + 1, d))))
                            return {"components": parts(v), "returned": returned}
                        out[op] = attempt(f)
                    cases.add("mirrored_write", "replica context, %s %s" % (d, agg), strategy, {"initial": 10, "value": "id+1"} | ({"dtype": d} if d == "int64" else {}), out)
                v = make(s, 10., agg)

                def fn():
                    v.assign(tf.cast(replica_id() + 1, tf.float32))
                    return v.read_value()
                reads = attempt(lambda: s.run(fn))
                cases.add("mirrored_write", "NONE aggregation diverges; a cross-replica read shows replica 0" if agg == "NONE" else
                          "aggregation %s: components stay equal" % agg, strategy, {"initial": 10.0, "value": "id+1"},
                          {"components": parts(v), "cross_read": show(v.read_value()), "replica_reads": reads})

            def cross(label, text, value, ops=WRITES[:2]):
                out = {}
                for op in ops:
                    def f():
                        v = make(s, 10., agg)
                        with s.scope():
                            r = getattr(v, op)(value())
                        return {"components": parts(v), "returned_type": type(r).__name__}
                    out[op] = attempt(f)
                cases.add("mirrored_write", label, strategy, {"initial": 10.0, "value": text}, out)
            cross("cross-replica, plain value, aggregation %s (no aggregation happens)" % agg, 3.0, lambda: 3.0, WRITES)
            ids = [float(i + 1) for i in range(n)]
            cross("cross-replica, PerReplica value, aggregation " + agg, {"PerReplica": ids}, lambda: per_replica(s, ids), WRITES[:1])
            cross("cross-replica, Mirrored value, aggregation " + agg, {"Mirrored": [4.0] * n}, lambda: mirror(s, 4.), WRITES[:1])
            cross("cross-replica, value is another mirrored variable, aggregation " + agg, "mirrored 6.0", lambda: make(s, 6.))
        v = make(s, 10., "SUM")
        v.assign_add(5.)
        cases.add("mirrored_write", "written in a replica context of the default strategy (outside every scope)", strategy, {}, parts(v))
        other = strategy_of("mirrored-2" if strategy != "mirrored-2" else "mirrored-4")

        def elsewhere():
            with other.scope():
                v.assign(1.)
        cases.add("mirrored_write", "written inside another strategy scope", strategy, {}, attempt(elsewhere))


def scatters(cases):
    ops = ("add", "sub", "mul", "div", "update", "min", "max")
    for strategy in ALL:
        s = strategy_of(strategy)
        for agg in AGGREGATIONS:
            for index in (1, 0):
                if strategy.startswith("mirrored"):
                    out = {}
                    for op in ops:
                        def f():
                            v = make(s, [1., 1., 1.], agg)
                            s.run(lambda: getattr(v, "scatter_" + op)(tf.IndexedSlices(tf.reshape(tf.cast(replica_id() + 1, tf.float32), [1]), tf.constant([index]))))
                            return parts(v)
                        out["scatter_" + op] = attempt(f)
                    cases.add("scatter", "mirrored, replica context, index %d, value id+1, aggregation %s" % (index, agg), strategy, {"initial": [1., 1., 1.]}, out)
                out = {}
                for op in ops if index == 0 else ("add", "update", "min"):
                    def f():
                        v = make(s, [1., 1., 1.], agg)
                        with s.scope():
                            getattr(v, "scatter_" + op)(tf.IndexedSlices(tf.constant([5.]), tf.constant([index])))
                        return parts(v)
                    out["scatter_" + op] = attempt(f)
                cases.add("scatter", "mirrored, cross-replica, index %d, value 5, aggregation %s" % (index, agg), strategy, {"initial": [1., 1., 1.]}, out)
            v = make(s, [1., 1., 1.], agg, synchronization=ON_READ)
            slices = tf.IndexedSlices(tf.constant([5.]), tf.constant([1]))
            if strategy == "tpu-host-1" or strategy == "mirrored-1":
                continue
            cases.add("scatter", "sync-on-read, aggregation " + agg, strategy, {}, {"scatter_" + op: attempt(lambda: getattr(v, "scatter_" + op)(slices)) for op in ops})


def on_read(s, components, agg, dtype=tf.float32):
    v = make(s, tf.constant(components[0], dtype), agg, synchronization=ON_READ)
    for x, c in zip(v.values, components):
        x.assign(tf.constant(c, dtype))
    return v


def sync_on_read(cases):
    for strategy in ALL:
        s = strategy_of(strategy)
        n = replicas(s)
        ids = [float(i + 1) for i in range(n)]
        for agg in AGGREGATIONS:
            if strategy.startswith("mirrored"):
                v = make(s, 10., agg, synchronization=ON_READ)

                def fn():
                    returned = v.assign_add(tf.cast(replica_id() + 1, tf.float32))
                    return returned, v.read_value(), v + 0.
                returned, now, expr = s.run(fn)

                def scoped(f):
                    with s.scope():
                        return f()
                cases.add("sync_on_read", "replica assign_add(id+1) to 10 then read, aggregation " + agg, strategy, {"initial": 10.0, "added": "id+1"},
                          {"components": parts(v), "replica_read": show(now), "replica_expr": show(expr), "assign_returns": show(returned),
                           "cross_read": attempt(v.read_value), "cross_numpy": attempt(v.numpy), "cross_value": attempt(v.value),
                           "cross_convert": attempt(lambda: tf.convert_to_tensor(v)), "cross_expr_plus_1": attempt(lambda: v + 1),
                           "scope_read": attempt(lambda: scoped(v.read_value)), "read_var": attempt(lambda: scoped(lambda: s.extended.read_var(v)))})
            for value in (8.0, 3.0):
                out = {}
                for op in WRITES:
                    def f():
                        v = on_read(s, ids, agg)
                        with s.scope():
                            r = getattr(v, op)(value)
                        return {"components": parts(v), "returned": show(r)}
                    out[op] = attempt(f)
                cases.add("sync_on_read", "cross-replica write over components 1..n, aggregation " + agg, strategy, {"components": ids, "value": value}, out)
            v = on_read(s, ids, agg)
            cases.add("sync_on_read", "cross-replica read of components 1..n, aggregation " + agg, strategy, {"components": ids},
                      {k: attempt(f) for k, f in (("read_value", v.read_value), ("value", v.value), ("numpy", v.numpy))})
            cases.add("sync_on_read", "cross-replica assign of a PerReplica, aggregation " + agg, strategy, {"value": "PerReplica(1..n)"},
                      attempt(lambda: on_read(s, ids, agg).assign(per_replica(s, ids))))
            v = on_read(s, ids, agg)

            def quiet():
                with s.scope():
                    v.assign(8., read_value=False)
                return parts(v)
            cases.add("sync_on_read", "cross-replica assign with read_value=False, aggregation " + agg, strategy, {"value": 8.0}, attempt(quiet))
            v = on_read(s, ids, agg)

            def updated():
                with s.scope():
                    return s.extended.update(v, lambda x: x.read_value(), group=False)
            cases.add("sync_on_read", "read in update context" + ("" if agg == "NONE" else ", aggregation " + agg), strategy, {"components": ids}, attempt(updated))
        for value, d in ((7, "int32"), (7, "int64"), (-7, "int32"), (8, "int32")):
            def f():
                v = make(s, tf.constant(0, d), "SUM", synchronization=ON_READ)
                with s.scope():
                    v.assign(value)
                return {"components": parts(v), "read": show(v.read_value())}
            cases.add("sync_on_read", "integer SUM: assign divides then casts (loses the remainder)", strategy, {"value": value, "dtype": d}, attempt(f))


def checkpoints(cases):
    for kind in ("mirrored", "tpu-host"):
        for n in (1, 2, 4):
            strategy = "%s-%d" % (kind, n)
            s, four = strategy_of(strategy), strategy_of(kind + "-4")

            def trip(v, into):
                with tempfile.TemporaryDirectory() as folder:
                    path = tf.train.Checkpoint(v=v).write(os.path.join(folder, "c"))
                    saved = tf.train.load_checkpoint(path).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
                    w = into()
                    tf.train.Checkpoint(v=w).read(path).assert_consumed()
                    restored = parts(w) if isinstance(w, values_lib.DistributedVariable) else show(w)
                    return {"saved": show(saved), "restored": restored, "cross_read": show(w.numpy() if not isinstance(w, values_lib.DistributedVariable) else w.read_value())}
            for agg in AGGREGATIONS:
                comps = [3., 5., 7., 9.][:n]
                v = on_read(s, comps, agg)
                cases.add("checkpoint", "ON_READ, aggregation %s: save components %s, restore" % (agg, str([int(c) for c in comps]).replace(" ", "")), strategy, {"components": comps},
                          {"same": attempt(lambda: trip(v, lambda: make(s, 0., agg, synchronization=ON_READ))),
                           "into_4_replicas": attempt(lambda: trip(v, lambda: make(four, 0., agg, synchronization=ON_READ))),
                           "into_plain_variable": attempt(lambda: trip(v, lambda: tf.Variable(0.)))})
                v = make(s, 6., agg)
                cases.add("checkpoint", "mirrored (ON_WRITE), aggregation %s: value 6 is saved once and copied to every replica, no scaling" % agg, strategy, {"components": [6.] * n},
                          {"same": attempt(lambda: trip(v, lambda: make(s, 0., agg))), "into_4_replicas": attempt(lambda: trip(v, lambda: make(four, 0., agg)))})
            for d in ("int32", "int64"):
                comps = [3, 4, 5, 6][:n]
                v = on_read(s, comps, "SUM", d)
                zero = tf.constant(0, d)
                cases.add("checkpoint", "ON_READ %s SUM %s (%d/%d truncates)" % (d, str(comps).replace(" ", ""), sum(comps), n), strategy, {"components": comps},
                          {"same": attempt(lambda: trip(v, lambda: make(s, zero, "SUM", synchronization=ON_READ))),
                           "into_4_replicas": attempt(lambda: trip(v, lambda: make(four, zero, "SUM", synchronization=ON_READ)))})
            comps = [6., 9., 10., 11.][:n]
            v = make(s, 0.)
            for x, c in zip(v.values, comps):
                x.assign(c)
            cases.add("checkpoint", "mirrored with diverged components: the primary (replica 0) is what is saved", strategy, {"components": comps},
                      attempt(lambda: trip(v, lambda: make(s, 0.))))


def run(cases):
    creation(cases)
    writes(cases)
    scatters(cases)
    sync_on_read(cases)
    checkpoints(cases)
