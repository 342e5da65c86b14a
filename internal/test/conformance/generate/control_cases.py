"""Cases of control: update, devices, reduce_to, merge_call, contexts, loops."""

import threading

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from common import attempt, mirror, per_replica, replicas, show, strategy_of
from variables_cases import AGGREGATIONS, ALL, make, parts, replica_id

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def inside(s, f):
    with s.scope():
        return f()


def other_than(strategy):
    return strategy_of("mirrored-4" if strategy == "mirrored-2" else "mirrored-2")


def updates(cases):
    for strategy in ALL:
        s = strategy_of(strategy)
        e, n = s.extended, replicas(s)
        mirrored = strategy.startswith("mirrored")

        def add(name, f, inputs=None):
            cases.add("update", name, strategy, inputs or {}, attempt(lambda: inside(s, f)))

        def grouped():
            v = make(s, 5.)
            return [show(e.update(v, lambda v, x: v.assign(x), args=(1.,))), parts(v)]

        def seen():
            v, out = make(s, 5.), []
            def fn(v):
                out.append([v.device.split("/")[-1], tf.constant(1.).device.split("/")[-1], distribute_lib.get_update_replica_id()])
            e.update(v, fn)
            return out

        def each():
            v = make(s, 5.)
            a = e.update(v, lambda v: v.assign_add(1.).numpy(), group=False)
            return [[float(x) for x in a], [show(x.numpy()) for x in e.update(v, lambda v: v.assign(2.), group=False)]]

        def with_args(args, agg="NONE", **kw):
            v = make(s, 5. if not kw else 4., agg)
            e.update(v, lambda v, x, y=0.: v.assign_add(x + y), args=args(), kwargs=kw)
            return parts(v)
        ids = [float(i + 1) for i in range(n)]
        add("assign(1.0) from 5.0; grouped result", grouped, {"initial": 5.0})
        add("fn sees each component, its device and the update id", seen)
        add("group=False gives one entry per replica", each)
        add("mirrored args are split per component", lambda: with_args(lambda: (mirror(s, 1.),), y=2.), {"args": "Mirrored(1,1), kw y=2.0"})
        for agg in AGGREGATIONS:
            add("PerReplica args, aggregation " + agg, lambda: with_args(lambda: (per_replica(s, ids),), agg),
                {"args": "PerReplica(%s)" % ",".join(str(i + 1) for i in range(n))})
        add("other mirrored variable as argument", lambda: with_args(lambda: (make(s, 2.),)))

        def outside():
            v = make(s, 5.)
            e.update(v, lambda v: v.assign(2.))
            return parts(v)
        cases.add("update", "called outside the scope works (enters it)", strategy, {}, attempt(outside))
        other = other_than(strategy)
        cases.add("update", "called inside the scope of another strategy", strategy, {}, attempt(lambda: inside(other, outside_of(s))))
        v = make(other, 1.)
        add("foreign variable", lambda: e.update(v, lambda v: v.assign(2.)))
        if mirrored:
            def from_replicas():
                v = make(s, 5.)
                def fn():
                    g = tf.distribute.get_replica_context().all_reduce("SUM", tf.cast(replica_id() + 1, tf.float32))
                    tf.distribute.get_replica_context()._update(v, lambda v, x: v.assign(x), args=(g,))
                s.run(fn)
                return parts(v)
            cases.add("update", "replica context: ReplicaContext._update / extended.update(var) merges", strategy, {"value": "id+1 summed first"}, attempt(from_replicas))

            def pattern(op):
                v = make(s, 5.)
                def fn():
                    def merge(s, g):
                        r, = s.extended.batch_reduce_to(op, [(g, v)])
                        s.extended.update(v, lambda v, x: v.assign_sub(0.1 * x), args=(r,))
                    tf.distribute.get_replica_context().merge_call(merge, args=(tf.cast(replica_id() + 1, tf.float32),))
                s.run(fn)
                return parts(v)
            cases.add("update", "doc pattern: merge_call, batch_reduce_to(SUM), update", strategy, {"grad": "id+1", "lr": 0.1, "initial": 5.0}, attempt(lambda: pattern(SUM)))


def outside_of(s):
    v = make(s, 5.)
    return lambda: s.extended.update(v, lambda v: v.assign(2.))


def devices(cases):
    for strategy in ALL:
        s = strategy_of(strategy)
        e, n = s.extended, replicas(s)
        v = make(s, 1.)
        d = inside(s, lambda: e.non_slot_devices([v]))
        cases.add("non_slot", "non_slot_devices", strategy, {}, show(list(d)) if not isinstance(d, str) else d)
        ids = []

        def fn(x=3.):
            ids.append(distribute_lib.get_update_replica_id())
            return tf.constant(x)
        out = attempt(lambda: inside(s, lambda: e.update_non_slot(d, fn)))
        cases.add("non_slot", "update_non_slot: fn runs once per non-slot device", strategy, {}, [out, list(ids)])
        cases.add("non_slot", "update_non_slot group=False", strategy, {}, attempt(lambda: inside(s, lambda: e.update_non_slot(d, fn, args=(4.,), group=False))))
        values = [float(i + 1) for i in range(n)]
        if strategy.startswith("mirrored"):
            cases.add("non_slot", "update_non_slot with PerReplica args", strategy, {"args": "PerReplica(%s)" % ",".join(str(i + 1) for i in range(n))},
                      attempt(lambda: inside(s, lambda: e.update_non_slot(d, lambda x: x, args=(per_replica(s, values),)))))
            cases.add("non_slot", "in a replica context", strategy, {}, attempt(lambda: s.run(lambda: e.update_non_slot(d, fn))))

        def colocated(w):
            with e.colocate_vars_with(w):
                return [x.device.split("/")[-1] for x in tf.Variable(1.).values]
        other = other_than(strategy)
        w = make(other, 1.)
        cases.add("colocate", "variable created next to another", strategy, {}, attempt(lambda: inside(s, lambda: colocated(v))))
        cases.add("colocate", "outside the scope", strategy, {}, attempt(lambda: colocated(v)))
        cases.add("colocate", "inside the scope of another strategy", strategy, {}, attempt(lambda: inside(other, lambda: colocated(v))))
        cases.add("colocate", "with a variable of another strategy", strategy, {}, attempt(lambda: inside(s, lambda: colocated(w))))
        cases.add("colocate", "with a tensor", strategy, {}, attempt(lambda: inside(s, lambda: colocated(tf.constant(1.)))))
        cases.add("colocate", "with a plain variable", strategy, {}, attempt(lambda: inside(s, lambda: colocated(w.values[0]))))
        cases.add("colocate", "with the result of non_slot_devices()", strategy, {}, attempt(lambda: inside(s, lambda: colocated(d))))
        t = tf.constant(3.)
        one = e.worker_devices[0]
        cases.add("broadcast_to", "python float / tensor, destinations = mirrored variable", strategy, {"value": 3.0},
                  {"python": attempt(lambda: inside(s, lambda: e.broadcast_to(3., v))), "tensor": attempt(lambda: inside(s, lambda: e.broadcast_to(t, v))),
                   "to_one_device": attempt(lambda: inside(s, lambda: e.broadcast_to(t, one)))})
        cases.add("broadcast_to", "destinations None / list", strategy, {},
                  {"none": attempt(lambda: inside(s, lambda: e.broadcast_to(t, None))), "list": attempt(lambda: inside(s, lambda: e.broadcast_to(t, [one])))})
        x = per_replica(s, values)
        untouched = make(s, 9.)
        cases.add("reduce_to", "per-replica to a variable / to itself / to one device", strategy, {"value": values},
                  {"to_variable": attempt(lambda: inside(s, lambda: e.reduce_to(SUM, x, untouched))), "to_itself": attempt(lambda: inside(s, lambda: e.reduce_to(MEAN, x, x))),
                   "to_device": attempt(lambda: inside(s, lambda: e.reduce_to(SUM, x, one))), "variable_untouched": parts(untouched) == [9.] * n})
        cases.add("reduce_to", "errors", strategy, {},
                  {"list_destination": attempt(lambda: inside(s, lambda: e.reduce_to(SUM, x, [one]))),
                   "variable_aggregation_as_op": attempt(lambda: inside(s, lambda: e.reduce_to(tf.VariableAggregation.SUM, x, v))),
                   "bad_string": attempt(lambda: inside(s, lambda: e.reduce_to("MAX", x, v)))})
        y = per_replica(s, [10. * z for z in values])
        for op in (SUM, MEAN):
            cases.add("batch_reduce_to", "two pairs, %s" % op.name, strategy, {"values": [values, [10. * z for z in values]]},
                      attempt(lambda: inside(s, lambda: e.batch_reduce_to(op, [(x, x), (y, v)]))))
        if strategy.startswith("mirrored"):
            for name, f in (("broadcast_to", lambda: e.broadcast_to(t, v)), ("reduce_to", lambda: e.reduce_to(SUM, x, v)),
                            ("batch_reduce_to", lambda: e.batch_reduce_to(SUM, [(x, v)]))):
                cases.add(name, "in a replica context", strategy, {}, attempt(lambda: s.run(f)))
                cases.add(name, "inside another strategy scope", strategy, {}, attempt(lambda: inside(other, f)))


def contexts(cases):
    rc = tf.distribute.get_replica_context
    for n in (1, 2, 4):
        strategy = "mirrored-%d" % n
        s = strategy_of(strategy)
        other = other_than(strategy)
        other_name = "mirrored-4" if strategy == "mirrored-2" else "mirrored-2"

        def merged(fn, *args):
            return rc().merge_call(fn, args=args)

        def call(name, f, inputs=None):
            cases.add("merge_call", name, strategy, inputs or {}, attempt(lambda: s.run(f)))

        def doc():
            x = tf.constant(3) + replica_id()
            return x + merged(lambda s, v: s.reduce("SUM", v, None), x)
        call("doc example: three + id, summed", doc, {"three": 3})
        call("mirrored/plain results are given to each replica", lambda: merged(lambda s: tf.constant(4.)))

        def some():
            if int(replica_id()) == 0:
                merged(lambda s: None)
        if n > 1:
            call("only some replicas call it", some)

        def twice():
            x = merged(lambda s, v: s.reduce("SUM", v, None), replica_id() + 1)
            return merged(lambda s, v: s.reduce("SUM", v, None), x + replica_id() * 0)
        call("two in a row", twice)

        def nested():
            kept = rc()
            return kept.merge_call(lambda s: kept.merge_call(lambda s: None))
        call("nested through the kept replica context", nested)
        call("nested through get_replica_context()", lambda: merged(lambda s: rc().merge_call(lambda s: None)))

        def raising(s):
            raise ValueError("raised in the merge function")
        call("merge_fn raises an exception", lambda: merged(raising))
        cases.add("merge_call", "called with get_replica_context() in cross-replica context", strategy, {}, attempt(lambda: inside(s, lambda: rc().merge_call(lambda s: None))))
        call("inside a tf.function passed to run is fine", tf.function(lambda: merged(lambda s, v: s.reduce("SUM", v, None), replica_id() + 1)))
        nested_function = tf.function(lambda: merged(lambda s: tf.constant(1.)))
        call("inside a nested tf.function", lambda: nested_function())
        call("inside tf.cond in a tf.function", tf.function(lambda: tf.cond(tf.constant(1.) + tf.cast(replica_id(), tf.float32) > 0, lambda: merged(lambda s: tf.constant(1.)), lambda: tf.constant(2.))))

        def report():
            ctx = tf.distribute.get_replica_context()
            return {"strategy": "default" if not tf.distribute.has_strategy() else "S2", "has_strategy": tf.distribute.has_strategy(),
                    "in_cross_replica": tf.distribute.in_cross_replica_context(), "replica_context": ctx is not None}
        got = {"outside": report()}
        v = make(s, 1.)
        with s.scope():
            got["scope"] = report()
            def fn():
                got["run"] = report()
                def m(st):
                    got["merge_call"] = report()
                    got["merge_call_arg_is_strategy"] = st is s
                merged(m)
            s.run(fn)
            with s.scope():
                got["scope nested in the same scope"] = report()
            got["after nested scope exit"] = report()
            def up(k):
                def f(*a):
                    got[k] = report() | {"update_replica_id": distribute_lib.get_update_replica_id()}
                return f
            s.extended.update(v, up("update"))
            s.extended.update_non_slot(s.extended.non_slot_devices([v]), up("update_non_slot"))
        got["after scope exit"] = report()
        cases.add("context", "what each context reports (last replica wins for update ids)", strategy, {}, got)

        def with_as():
            with s.scope() as x:
                return x is s
        cases.add("context", "with scope() as x gives the strategy", strategy, {}, with_as())
        cases.add("context", "nested scope of another strategy", "%s in %s" % (strategy, other_name), {}, attempt(lambda: inside(other, lambda: inside(s, lambda: 1))))
        for name, f in (("scope() inside run()", lambda: inside(s, lambda: 1)), ("scope() of another strategy inside run()", lambda: inside(other, lambda: 1)),
                        ("run() inside run()", lambda: s.run(lambda: 1)), ("run() inside run() of another strategy", lambda: other.run(lambda: 1)),
                        ("call_for_each_replica inside run()", lambda: s.extended.call_for_each_replica(lambda: 1)),
                        ("run() inside merge_call() of the same strategy", lambda: merged(lambda s: s.run(lambda: tf.constant(5.) + tf.cast(replica_id(), tf.float32))))):
            cases.add("context", name, strategy, {}, attempt(lambda: s.run(f)))
        cases.add("context", "run() inside the scope of another strategy", strategy, {}, attempt(lambda: inside(other, lambda: s.run(lambda: 1))))
        out = []
        with s.scope():
            t = threading.Thread(target=lambda: out.append(tf.distribute.has_strategy()))
            t.start()
            t.join()
        cases.add("context", "a new thread starts outside every scope", strategy, {}, out[0])


def loops(cases):
    for n in (1, 2, 4):
        strategy = "mirrored-%d" % n
        s = strategy_of(strategy)
        e = s.extended

        def outcome(fn, iterations, data="range(12).batch(2)", values=None):
            size, batch = [int(x) for x in data.replace(")", "(").split("(")[1::2]]
            it = iter(s.experimental_distribute_dataset(tf.data.Dataset.range(size).batch(batch, drop_remainder=True)))
            with s.scope():
                ctx = e.experimental_run_steps_on_iterator(fn, it, iterations=iterations, initial_loop_values=values)
                r = ctx._last_step_outputs_reduce_ops
                return {"last_step_outputs": {k: show(tf.nest.map_structure(lambda x: x, v)) for k, v in ctx.last_step_outputs.items()},
                        "non_tensor_outputs": {k: show(v) for k, v in ctx.non_tensor_outputs.items()}, "run_op": None,
                        "reduce_ops": {k: v.name if v else None for k, v in r.items()}}

        def first(x):
            return tf.cast(x[0], tf.float32)
        for op in (None, SUM, MEAN) if n == 1 else (SUM, MEAN):  # the loop cannot carry a value of several replicas
            for iterations in (1, 2, 3):
                def across(ctx, x):
                    y = s.run(first, args=(x,))
                    ctx.set_last_step_output("y", y, op)
                initial = {"y": per_replica(s, [0.] * n)} if op is None else {"y": tf.constant(0.)}
                data = "range(12).batch(%d)" % n
                name = "cross-replica set_last_step_output without reduce, %d iterations" % iterations if op is None else "cross-replica with %s, %d iterations" % (op.name, iterations)
                cases.add("run_steps", name, strategy, {"data": data, "iterations": iterations}, attempt(lambda: outcome(across, iterations, data, initial)))

                def replica(ctx, x):
                    def fn(x):
                        ctx.set_last_step_output("y", first(x), op)
                        ctx.set_non_tensor_output("n", "text")
                    s.run(fn, args=(x,))
                name = "replica context set_last_step_output %s, non-tensor output" % ("without reduce op" if op is None else "with " + op.name)
                cases.add("run_steps", name, strategy, {"data": data, "iterations": iterations}, attempt(lambda: outcome(replica, iterations, data, initial)))
        cases.add("run_steps", "called in a replica context", strategy, {}, attempt(lambda: s.run(lambda: e.experimental_run_steps_on_iterator(None, None))))


def run(cases):
    updates(cases)
    devices(cases)
    contexts(cases)
    loops(cases)
