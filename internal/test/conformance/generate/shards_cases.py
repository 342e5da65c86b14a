"""OpShardings of other meshes, tiles and functions."""

import json, random
import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python.compiler.xla.experimental import xla_sharding
from common import message_of
from sharding_cases import annotated, described


def write(path):
    rng = random.Random(3)
    cases = []
    seen = set()

    def add(name, api, inputs, f):
        if name in seen:
            return
        seen.add(name)
        case = {'name': name, 'api': api, 'input': inputs}
        try:
            case['output'] = described(f())
        except Exception as e:
            case['error'] = {'type': type(e).__name__, 'message': message_of(e)}
        cases.append(case)
    S = xla_sharding.Sharding
    api = 'xla_sharding.Sharding'
    ser = lambda s: s.proto.SerializeToString()
    add('manual', api, {'fn': 'manual'}, lambda: ser(S.manual()))
    strategies = {}

    def method(kind, arg, shape, cores, spmd):
        f = annotated(strategies, kind, arg, shape, cores, spmd)
        add('%s: %s of %s over %d%s' % (kind, arg, shape, cores, ' (SPMD)' if spmd else ''), 'TPUStrategy.experimental_' + kind, {'num_logical_devices': cores, 'tensor_shape': shape, 'arg': arg, 'experimental_spmd_xla_partitioning': spmd}, f)
    for cores in (3, 6, 8):
        for _ in range(25):
            rank = rng.randint(0, 4)
            shape = [rng.choice([1, 2, 3, 4, 6, 12, 0, None]) for _ in range(rank)]
            parts = [rng.choice([1, 1, 2, 3, cores]) for _ in range(rank)]
            if rng.random() < 0.1 and rank:
                parts[0] = rng.choice([0, -1])
            method('split_to_logical_devices', parts, shape, cores, rng.random() < 0.5)
        for d in (0, 1, cores - 1, cores, cores + 3, -1, -cores):
            method('assign_to_logical_device', d, rng.choice([[], [2], [None, 3]]), cores, False)
        method('replicate_to_logical_devices', None, [None], cores, True)
    for _ in range(70):
        rank = rng.randint(1, 4)
        dims = [rng.choice([1, 2, 3, 4]) for _ in range(rank)]
        n = int(np.prod(dims))
        if n > 24:
            continue
        ids = list(range(n))
        if rng.random() < 0.6:
            rng.shuffle(ids)
        a = np.array(ids).reshape(dims)
        grid = a.tolist()
        name = 'x'.join(map(str, dims)) + ' ' + ','.join(map(str, ids))
        sh = [rng.choice([12, 7, 5, 24]) for _ in dims]
        add('tile ' + name, api, {'fn': 'tile', 'tile_assignment': grid, 'tensor_shape': sh}, lambda: ser(S.tile(a)))
        if rank > 1:
            add('partial_tile ' + name, api, {'fn': 'partial_tile', 'tile_assignment': grid, 'tensor_shape': sh[:-1]}, lambda: ser(S.partial_tile(a)))
        modes = [rng.choice(['MANUAL', 'REPLICATED']) for _ in range(rng.randint(1, rank))]
        add('subgroup_tile %s %s' % (name, modes), api, {'fn': 'subgroup_tile', 'tile_assignment': grid, 'subgroup_modes': modes}, lambda: ser(S.subgroup_tile(a, [getattr(xla_data_pb2.OpSharding, m) for m in modes])))
        mapping = [rng.choice([-1] + list(range(rank))) for _ in range(rng.randint(1, 4))]
        used = [m for m in mapping if m >= 0]
        manual = rng.choice([None, None, [rng.randrange(rank)]])
        if len(set(used + (manual or []))) < len(used + (manual or [])) and rng.random() < 0.8:
            continue
        inp = {'fn': 'mesh_split_sharding', 'device_mesh': grid, 'tensor_split_dims_mapping': mapping}
        if manual is not None:
            inp['manual_mesh_dims'] = manual
        add('mesh %s %s manual %s' % (name, mapping, manual), api, inp, lambda: ser(xla_sharding.mesh_split_sharding(a, mapping, manual_mesh_dims=manual)))
    for _ in range(40):
        rank = rng.randint(1, 4)
        shape = [rng.choice([1, 2, 3, 5, 8, None]) for _ in range(rank)]
        dim = rng.randrange(-rank, rank)
        n = rng.choice([1, 2, 3, 4, 8])
        over = None if rng.random() < 0.7 else [rng.choice([8, 16, 2]) for _ in range(rank)]
        inp = {'fn': 'split', 'tensor_shape': shape, 'split_dimension': dim, 'num_devices': n}
        if over:
            inp['input_shape'] = over

        def f():
            with tf.Graph().as_default():
                return ser(S.split(tf.compat.v1.placeholder(tf.float32, shape), dim, n, over))
        add('split of %s: axis %d by %d, %s' % (shape, dim, n, over), api, inp, f)

    def applied(fn):
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, [4, 8])
            y = fn(x)
            return y.op.get_attr('_XlaSharding')
    for tup in (False, True):
        for use in (False,) if tup else (False, True):
            kw = dict(assign_tuple_sharding=tup, use_sharding_op=use)
            note = ' %s %s' % (tup, use)
            add('replicate' + note, 'xla_sharding.replicate', dict(kw, tensor_shape=[4, 8]), lambda: applied(lambda x: xla_sharding.replicate(x, **kw)))
            add('assign_device 3' + note, 'xla_sharding.assign_device', dict(kw, device=3, tensor_shape=[4, 8]), lambda: applied(lambda x: xla_sharding.assign_device(x, 3, **kw)))
            add('tile' + note, 'xla_sharding.tile', dict(kw, tile_assignment=[[0, 1], [2, 3]], tensor_shape=[4, 8]), lambda: applied(lambda x: xla_sharding.tile(x, np.array([[0, 1], [2, 3]]), **kw)))
            add('split' + note, 'xla_sharding.split', dict(kw, split_dimension=1, num_devices=4, tensor_shape=[4, 8]), lambda: applied(lambda x: xla_sharding.split(x, 1, 4, **kw)))
    add('partial_tile of a tensor', 'xla_sharding.partial_tile', {'tile_assignment': [[[0, 1]], [[2, 3]]], 'tensor_shape': [4, 8]}, lambda: applied(lambda x: xla_sharding.partial_tile(x, np.array([[[0, 1]], [[2, 3]]]))))
    add('mesh_split of a tensor', 'xla_sharding.mesh_split', {'device_mesh': [[0, 1], [2, 3]], 'tensor_split_dims_mapping': [1, -1], 'tensor_shape': [4, 8]}, lambda: applied(lambda x: xla_sharding.mesh_split(x, np.array([[0, 1], [2, 3]]), [1, -1])))
    for outputs in (2, 4):
        for v in range(outputs):

            def g():
                with tf.Graph().as_default():
                    y = tf.split(tf.compat.v1.placeholder(tf.float32, [8]), outputs)[v]
                    xla_sharding.replicate(y, assign_tuple_sharding=True)
                    return y.op.get_attr('_XlaSharding')
            add('replicate on output %d of %d' % (v, outputs), 'xla_sharding.replicate', {'outputs': outputs, 'value_index': v}, g)

            def h():
                with tf.Graph().as_default():
                    y = tf.split(tf.compat.v1.placeholder(tf.float32, [8]), outputs)[v]
                    xla_sharding.split(y, 0, 2, assign_tuple_sharding=True)
                    return y.op.get_attr('_XlaSharding')
            add('split on output %d of %d' % (v, outputs), 'xla_sharding.split', {'outputs': outputs, 'value_index': v, 'split_dimension': 0, 'num_devices': 2, 'tensor_shape': [8 // outputs]}, h)
    tables = []
    shapes = [xla_sharding.get_sharding_tile_shape(bytes.fromhex(h)) for h in ('08031a03010202220400010203', '08031a0102220200013001', '0804')]
    tiles = [{'serialized_hex': h, 'result': None if s is None else list(s)} for h, s in zip(('08031a03010202220400010203', '08031a0102220200013001', '0804'), shapes)]
    json.dump({'oracle': 'tensorflow', 'generator': 'generate.py, hlo.py', 'conventions': 'the form of sharding.json', 'get_sharding_tile_shape': tiles, 'cases': cases}, open(path, 'w'))
