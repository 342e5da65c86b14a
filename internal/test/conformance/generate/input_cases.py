"""Cases of input: batches split over replicas and hosts."""

import os
import tempfile

import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute
from tensorflow.python.distribute import input_lib
from tensorflow.python.distribute import input_util
from tensorflow.python.distribute import values as values_lib

from common import DEVICE, attempt, replicas, show, strategy_of

POLICIES = ("OFF", "AUTO", "FILE", "DATA", "HINT")
SIZES = ((8, 4), (9, 4), (10, 4), (11, 4), (8, 8), (10, 8), (12, 5), (7, 7), (6, 3), (5, 1), (2, 8), (0, 4), (17, 6), (13, 13), (1, 1), (16, 4))


def leaf(x):
    return show(x) if isinstance(x, values_lib.DistributedValues) else {"Tensor": show(x)}


def steps_of(d, limit=None):
    out = []
    for x in d:
        out.append(tf.nest.map_structure(leaf, x, expand_composites=False))
        if limit and len(out) == limit:
            break
    return out


def with_policy(ds, policy):
    o = tf.data.Options()
    o.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return ds.with_options(o)


def ranges(cases):
    for strategy in ("mirrored-1", "mirrored-2", "mirrored-4", "tpu-host-1", "tpu-host-2", "tpu-host-4"):
        s = strategy_of(strategy)

        def distributed(ds, limit=None):
            d = s.experimental_distribute_dataset(ds)
            return {"steps": steps_of(d, limit), "element_spec": str(d.element_spec)}
        for size, batch in SIZES:
            for drop in (False, True):
                name = "range(%d).batch(%d%s)" % (size, batch, ", drop_remainder" if drop else "")
                cases.add("input", name, strategy, {"range": size, "global_batch": batch, "drop_remainder": drop},
                          attempt(lambda: distributed(tf.data.Dataset.range(size).batch(batch, drop_remainder=drop))))
            for policy in ("OFF", "DATA", "FILE", "HINT"):
                note = " (RebatchV2: fixed sizes, no re-spreading of a partial batch)" if policy == "OFF" else ""
                cases.add("input", "auto_shard %s: range(%d).batch(%d)%s" % (policy, size, batch, note), strategy,
                          {"range": size, "global_batch": batch, "auto_shard": policy},
                          attempt(lambda: distributed(with_policy(tf.data.Dataset.range(size).batch(batch), policy))))
        n = replicas(s)
        for size, batch in ((8, 2), (9, 2), (10, 2), (12, 3), (5, 1), (3, 4), (0, 2)):
            for drop in (False, True):
                calls = []

                def fn(c):
                    calls.append([c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync])
                    return tf.data.Dataset.range(size).batch(batch, drop_remainder=drop)

                def f():
                    d = s.distribute_datasets_from_function(fn)
                    return {"calls": calls, "steps": steps_of(d), "element_spec": str(d.element_spec)}
                cases.add("input_from_function", "range(%d).batch(%d%s) per replica" % (size, batch, ", drop_remainder" if drop else ""), strategy,
                          {"range": size, "per_replica_batch": batch, "drop_remainder": drop}, attempt(f))
        def pipeline(c):
            d = tf.data.Dataset.range(8)
            return d.shard(c.num_input_pipelines, c.input_pipeline_id).batch(c.get_per_replica_batch_size(4))
        cases.add("input_from_function", "doc example: shard by pipeline", strategy, {}, attempt(lambda: steps_of(s.distribute_datasets_from_function(pipeline))))
        elements = [[0, 1, 2, 3], [4]]
        def vectors():
            return tf.data.Dataset.from_generator(lambda: iter(elements), output_signature=tf.TensorSpec([None], tf.int32))
        cases.add("input", "never batched, vectors of unknown length", strategy, {"elements": elements}, attempt(lambda: distributed(vectors())))
        r = tf.data.Dataset.range
        for name, ds, limit in (
                ("not batched", r(8), None),
                ("batched then unbatched", r(8).batch(4).unbatch(), None),
                ("batch then map that keeps the batch", r(6).batch(4).map(lambda x: x * 10), None),
                ("batch then map that changes the batch dimension (legacy rebatch)", r(8).batch(4).map(lambda x: tf.concat([x, x], 0)), None),
                ("infinite dataset (first 3 steps)", r(3).repeat().batch(4), 3),
                ("range(8).batch(4).repeat(2)", r(8).batch(4).repeat(2), None),
                ("range(10).batch(4).take(2)", r(10).batch(4).take(2), None),
                ("range(10).batch(4).skip(1)", r(10).batch(4).skip(1), None),
                ("range(10).batch(4).prefetch(2)", r(10).batch(4).prefetch(2), None),
                ("range(10).batch(4).cache()", r(10).batch(4).cache(), None),
                ("range(6).repeat(2).batch(4)", r(6).repeat(2).batch(4), None),
                ("range(10).batch(2).unbatch().batch(4)", r(10).batch(2).unbatch().batch(4), None)):
            cases.add("input", name, strategy, {}, attempt(lambda: distributed(ds, limit)))
        def total():
            return s.experimental_distribute_dataset(r(6).batch(4)).reduce(tf.constant(0, tf.int64), lambda t, x: t + tf.reduce_sum([tf.reduce_sum(p) for p in s.experimental_local_results(x)]))
        cases.add("input", "dist_dataset.reduce", strategy, {}, attempt(total))
        options = tf.distribute.InputOptions
        mode = tf.distribute.InputReplicationMode.PER_REPLICA
        def hundreds(c):
            return r(4).batch(2).map(lambda x: x + 100 * c.input_pipeline_id)
        fresh = strategy_of(strategy, "input")
        for name, f in (
                ("PER_REPLICA with experimental_distribute_dataset", lambda: steps_of(fresh.experimental_distribute_dataset(r(8).batch(4), options(experimental_replication_mode=mode)))),
                ("PER_REPLICA with distribute_datasets_from_function (TF keeps this mode on the strategy object afterwards, so a fresh one is used here)",
                 lambda: steps_of(fresh.distribute_datasets_from_function(hundreds, options(experimental_fetch_to_device=False, experimental_replication_mode=mode)))),
                ("place_dataset_on_device without PER_REPLICA", lambda: steps_of(fresh.distribute_datasets_from_function(hundreds, options(experimental_place_dataset_on_device=True)))),
                ("PER_REPLICA + place_on_device + fetch_to_device", lambda: steps_of(strategy_of(strategy, "input2").distribute_datasets_from_function(
                    hundreds, options(experimental_fetch_to_device=True, experimental_place_dataset_on_device=True, experimental_replication_mode=mode))))):
            cases.add("input", name, strategy, {}, attempt(f))
        if strategy.startswith("mirrored"):
            def loop():
                per = [float(s.reduce("SUM", s.run(lambda y: tf.cast(y, tf.float32) * 2, args=(x,)), axis=0)) for x in s.experimental_distribute_dataset(r(6).batch(4))]
                return {"per_step": per, "total": sum(per)}
            cases.add("input", "doc loop: run(y*2) then reduce SUM axis 0 on range(6).batch(4)", strategy, {}, attempt(loop))


def text_files(folder, files, lines, tens):
    paths = []
    for f in range(files):
        paths.append(os.path.join(folder, "%03d.txt" % f))
        with open(paths[-1], "w") as out:
            out.write("".join("%d\n" % (l + (10 * f if tens else f * lines)) for l in range(lines)))
    return tf.data.TextLineDataset(paths).map(lambda x: tf.strings.to_number(x))


def sharded(cases):
    with tempfile.TemporaryDirectory() as folder:
        for strategy in ("mirrored-1", "mirrored-2", "mirrored-4"):
            s = strategy_of(strategy)
            for policy in POLICIES:
                for files, lines, batch in ((2, 5, 8), (1, 7, 4), (3, 4, 5)):
                    ds = with_policy(text_files(folder, files, lines, False).batch(batch), policy)
                    name = "1 host, %d text files of %d numbers 0..%d, batch(%d)" % (files, lines, files * lines - 1, batch)
                    note = " (last batch has %d)" % (files * lines % batch) if files * lines % batch else ""
                    cases.add("auto_shard", "%s%s, policy %s" % (name, note, policy), strategy, {"files": files, "lines": lines, "batch": batch, "policy": policy},
                              attempt(lambda: {"steps": steps_of(s.experimental_distribute_dataset(ds))}))
                for size, batch in ((10, 8), (11, 4), (9, 5)):
                    ds = with_policy(tf.data.Dataset.range(size).batch(batch), policy)
                    cases.add("auto_shard", "1 host, range(%d).batch(%d), policy %s" % (size, batch, policy), strategy, {"range": size, "batch": batch, "policy": policy},
                              attempt(lambda: {"steps": steps_of(s.experimental_distribute_dataset(ds))}))
        for hosts, n in ((2, 4), (2, 2), (4, 4), (1, 4)):
            s = strategy_of("mirrored-%d" % n)
            each = n // hosts
            workers = input_lib.InputWorkers([(DEVICE % ("CPU", 4 + h), [DEVICE % ("CPU", h * each + r) for r in range(each)]) for h in range(hosts)])
            label = "%d host%s x %d replica%s" % (hosts, "" if hosts == 1 else "s", each, "" if each == 1 else "s")
            where = "%d workers, %d replicas" % (hosts, n)

            def run(ds):
                return steps_of(input_util.get_distributed_dataset(ds, workers, s, num_replicas_in_sync=n))
            for policy in POLICIES:
                for files, lines, batch in ((4, 4, 8), (1, 4, 4), (3, 4, 8), (2, 5, 6), (4, 3, 4)):
                    ds = with_policy(text_files(folder, files, lines, True).batch(batch), policy)
                    name = "%s, %d text file%s of %d numbers%s, batch(%d), policy %s" % (label, files, "" if files == 1 else "s", lines, "" if files == 1 else " (10*file+line)", batch, policy)
                    cases.add("auto_shard", name, where, {"files": files, "lines": lines, "batch": batch}, attempt(lambda: run(ds)))
                for size, batch in ((16, 8), (10, 4), (12, 6), (7, 8)):
                    ds = with_policy(tf.data.Dataset.range(size).batch(batch), policy)
                    cases.add("auto_shard", "%s, range(%d).batch(%d)%s, policy %s" % (label, size, batch, " partial" if size % batch else "", policy), where,
                              {"range": size, "batch": batch}, attempt(lambda: run(ds)))


def rebatched(cases):
    def chunks(size, batch, n):
        return [show(x) for x in distribute._LegacyRebatchDataset(tf.data.Dataset.range(size).batch(batch), n)]
    for size, batch, n in ((8, 4, 3), (10, 4, 2), (9, 5, 4), (6, 6, 6)):
        cases.add("rebatch", "_LegacyRebatchDataset, range(%d).batch(%d) over %d" % (size, batch, n), "-", {"range": size, "batch": batch, "num_replicas": n}, chunks(size, batch, n))
    for workers, n, batch, size in ((2, 4, 8, 20), (2, 4, 6, 13), (1, 4, 5, 11), (4, 4, 4, 10), (2, 2, 3, 9), (3, 6, 7, 16)):
        for w in range(workers):
            sizes = distribute.batch_sizes_for_worker(batch, workers, n // workers, w).numpy().tolist()
            ds = tf.data.Dataset.range(size).batch(batch).rebatch(sizes)
            cases.add("rebatch", "batch_sizes_for_worker(%d, %d, %d, %d)" % (batch, workers, n // workers, w), "-",
                      {"global_batch": batch, "num_workers": workers, "num_replicas_per_worker": n // workers, "worker_index": w},
                      [int(x) for x in sizes])
            cases.add("rebatch", "range(%d).batch(%d).rebatch(%s)" % (size, batch, [int(x) for x in sizes]), "-", {"range": size, "batch": batch, "batch_sizes": [int(x) for x in sizes]}, [show(x) for x in ds])


def run(cases):
    ranges(cases)
    sharded(cases)
    rebatched(cases)
