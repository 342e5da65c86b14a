"""Input of nests, of other ranks and dtypes, and what iterators refuse."""

import tensorflow as tf

from common import attempt, replicas, strategy_of
from input_cases import steps_of, with_policy


def run(cases):
    r = tf.data.Dataset.range
    for strategy in ("mirrored-1", "mirrored-2", "mirrored-3", "tpu-host-2", "tpu-host-3"):
        s = strategy_of(strategy)

        def distributed(ds, limit=None):
            d = s.experimental_distribute_dataset(ds)
            return {"steps": steps_of(d, limit), "element_spec": str(d.element_spec)}

        def case(name, ds):
            cases.add("input", name, strategy, {}, attempt(lambda: distributed(ds())))
        case("tuple of two components", lambda: tf.data.Dataset.zip((r(7), r(7).map(lambda x: x * 10))).batch(4))
        case("dict of two components", lambda: r(7).map(lambda x: {"x": x, "y": tf.cast(x, tf.float32) / 2}).batch(4))
        case("nest: a dict in a tuple", lambda: r(5).map(lambda x: (x, {"b": [x, x + 1], "a": -x})).batch(3))
        case("matrices", lambda: r(6).map(lambda x: tf.stack([x, x + 1])).batch(4))
        case("rank 3, drop_remainder", lambda: r(9).map(lambda x: tf.reshape(tf.stack([x, x, x, x]), [2, 2])).batch(6, drop_remainder=True))
        case("float64 scalars in batches", lambda: r(5).map(lambda x: tf.cast(x, tf.float64) / 4).batch(2))
        case("int32 scalars in batches", lambda: r(5).map(lambda x: tf.cast(x, tf.int32)).batch(3))
        case("strings", lambda: r(5).map(tf.strings.as_string).batch(3))
        case("components of different batch sizes", lambda: tf.data.Dataset.zip((r(8).batch(4), r(4).batch(2))))
        case("components of different batch sizes, partial", lambda: tf.data.Dataset.zip((r(7).batch(4), r(5).batch(3))))
        case("concatenated datasets of different batches", lambda: r(4).batch(4).concatenate(r(6).batch(3)))
        case("filtered batches", lambda: r(12).batch(4).filter(lambda x: x[0] != 4))
        case("flat_map into batches", lambda: r(3).flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(4).batch(2)))
        case("padded batches", lambda: r(1, 6).map(lambda x: tf.repeat(x, x)).padded_batch(2))
        case("batches of batches", lambda: r(12).batch(2).batch(4))
        case("windows of one", lambda: r(6).batch(1).unbatch().batch(5, drop_remainder=True))
        case("shuffled with a buffer of one", lambda: r(10).shuffle(1).batch(4))
        case("interleaved", lambda: r(3).interleave(lambda x: r(x * 10, x * 10 + 3), cycle_length=2).batch(4))
        case("shards of the range", lambda: r(16).shard(2, 1).batch(3))
        case("enumerated", lambda: r(5).enumerate().batch(2))
        case("empty dataset of tuples", lambda: tf.data.Dataset.zip((r(0), r(0))).batch(2))


        def fn(c):
            return tf.data.Dataset.zip((r(7), r(7).map(lambda x: {"k": x * 2}))).batch(2)
        cases.add("input_from_function", "tuple and dict, batches of 2", strategy, {}, attempt(lambda: {"steps": steps_of(s.distribute_datasets_from_function(fn))}))
        for policy in ("OFF", "DATA"):
            cases.add("input", "auto_shard %s: dict of two components" % policy, strategy, {"auto_shard": policy},
                      attempt(lambda: distributed(with_policy(r(7).map(lambda x: {"x": x, "y": -x}).batch(5), policy))))
