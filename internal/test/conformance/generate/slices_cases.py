"""Device assignments of permuted, broken and large slices, and rings."""

import json, random
import numpy as np
from tensorflow.python.tpu import device_assignment as A
from tensorflow.python.tpu import topology as T
import assignment_cases as base
from common import message_of


def write(path):
    rng = random.Random(11)
    tops = {}

    def top(name, mesh, tasks):
        tops[name] = T.Topology(mesh_shape=mesh, device_coordinates=np.array(tasks, dtype=np.int32))
    top('v2-8', [2, 2, 1, 2], base.slice_of([2, 2, 1, 2], (2, 2, 1)))
    for name, mesh, block in (('v5e-8_4x2', [4, 2, 1, 1], (4, 2, 1)), ('v5p_2x2x1', [2, 2, 1, 1], (2, 2, 1)), ('odd_5x2x3', [5, 2, 3, 1], (1, 2, 1)), ('line_z', [1, 1, 8, 1], (1, 1, 2)), ('cores_4', [2, 2, 1, 4], (1, 1, 1)), ('v4_8x2x2', [8, 2, 2, 1], (2, 2, 1)), ('deep_1x1x1x8', [1, 1, 1, 8], (1, 1, 1)), ('odd_cores', [2, 2, 2, 3], (2, 1, 1))):
        top(name, mesh, base.slice_of(mesh, block))
    for name, mesh, block in (('v3-32_shuffled', [4, 4, 1, 2], (2, 2, 1)), ('v4-16_shuffled', [2, 2, 4, 1], (2, 2, 1)), ('v5e_shuffled', [4, 4, 1, 1], (2, 2, 1))):
        tasks = base.slice_of(mesh, block)
        rng.shuffle(tasks)
        [rng.shuffle(t) for t in tasks]
        top(name, mesh, tasks)
    for name, mesh, block, drop in (('v3-32_two_hosts_missing', [4, 4, 1, 2], (2, 2, 1), 2), ('v4-32_missing', [2, 4, 4, 1], (2, 2, 1), 3)):
        tasks = base.slice_of(mesh, block)
        rng.shuffle(tasks)
        top(name, mesh, tasks[drop:])
    tasks = [t[:-2] for t in base.slice_of([4, 2, 1, 2], (2, 2, 1))]
    top('chips_missing', [4, 2, 1, 2], tasks)
    cases = []
    seen = set()
    errors = 0
    while len(cases) < 240:
        name = rng.choice(list(tops))
        mesh = tops[name].mesh_shape.tolist()
        shape = [rng.choice([1, 1, 2, 3, m, max(m // 2, 1)]) for m in mesh]
        stride = [rng.choice([1, 1, 2, 3, m]) for m in mesh] if rng.random() < 0.35 else None
        if rng.random() < 0.08:
            shape = None
        fits = 1
        for i, m in enumerate(mesh):
            s = (shape or [1] * 4)[i]
            st = (stride or [1] * 4)[i]
            fits *= m // max(s * st, 1) * st
        n = rng.choice([fits, fits, max(fits // 2, 1), max(fits - 1, 1), rng.randint(1, max(fits, 1)), rng.randint(1, max(fits, 1)), fits + 1, -2 if rng.random() < 0.2 else 1])
        mode = rng.choice(['AUTO', 'RING', 'MESH', None])
        key = (name, str(shape), str(stride), n, mode)
        if key in seen or (shape and n * np.prod(shape) > 600):
            continue
        seen.add(key)
        inp = {'topology': name, 'computation_shape': shape, 'computation_stride': stride, 'num_replicas': n}
        kw = {}
        if mode:
            inp['device_order_mode'] = mode
            kw['device_order_mode'] = A.DeviceOrderMode[mode]
        if n == 1 and rng.random() < 0.5:
            del inp['num_replicas']
        case = {'name': '%s: %s of shape %s, stride %s, %s' % (rng.choice(['build', 'assignment', 'random']), name, shape, stride, mode) + ' x%d' % n, 'kind': 'build', 'input': inp}
        try:
            case['output'] = base.outcome(A.DeviceAssignment.build(tops[name], computation_shape=shape, computation_stride=stride, num_replicas=n, **kw))
        except Exception as e:
            case['error'] = {'type': type(e).__name__, 'message': message_of(e)}
            errors += 1
            if errors > 140:
                continue
        cases.append(case)
    for i in range(24):
        name = rng.choice(list(tops))
        t = tops[name]
        coords = [c for task in t.device_coordinates.tolist() for c in task]
        r, p = (rng.randint(1, 3), rng.randint(1, 4))
        cores = [[rng.choice(coords) for _ in range(p)] for _ in range(r)]
        case = {'name': 'custom cores %d on %s' % (i, name), 'kind': 'ctor', 'input': {'topology': name, 'core_assignment': cores}}
        try:
            case['output'] = base.outcome(A.DeviceAssignment(t, np.array(cores, dtype=np.int32)))
        except Exception as e:
            case['error'] = {'type': type(e).__name__, 'message': message_of(e)}
        cases.append(case)
        n = rng.choice([1, 2, 4])
        task, core = (rng.randint(0, 6), rng.randint(0, 2))
        try:
            a = A.DeviceAssignment.build(t, num_replicas=n)
        except Exception:
            continue
        case = {'name': 'look up task %d, core %d' % (task, core), 'kind': 'lookup', 'input': {'topology': name, 'build': {'num_replicas': n}, 'task': task, 'core': core}}
        try:
            case['output'] = [int(x) for x in a.lookup_replicas(task, core)]
        except Exception as e:
            case['error'] = {'type': type(e).__name__, 'message': message_of(e)}
        cases.append(case)
    for wrong in ('<str "v2-8">', '<NoneType>'):
        cases.append({'name': 'error: topology wrong type', 'kind': 'build', 'input': {'topology': wrong, 'num_replicas': 2}, 'error': {'type': 'ValueError', 'message': '`topology` is not a Topology object; got'}})
    from tensorflow.core.protobuf.tpu import topology_pb2
    for mesh, nt, nd, co in (([2, 2, 1, 1], 2, 2, [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0]), ([2, 2, 1], 1, 1, [0, 0, 0]), ([2, 2, 1, 1], 1, -1, [0, 0, 0, 0]), ([2, 2, 1, 1], 0, 0, []), ([2, 2, 1, 1], 1, 1, []), ([2, 2, 1, 1], 1, 1, [0, 0, 0, 0, 0]), ([-1, 2, 1, 1], 1, 1, [0, 0, 0, 0]), ([2, 1, 1, 1, 1], 1, 1, [0] * 5), ([], 1, 1, [0, 0, 0, 0]), ([1, 1, 1, 1], 1, 1, [3, 0, 0, 0])):
        p = topology_pb2.TopologyProto(mesh_shape=mesh, num_tasks=nt, num_tpu_devices_per_task=nd, device_coordinates=co)
        case = {'name': 'proto %s %d x %d, %s' % (mesh, nt, nd, co), 'kind': 'topology_proto', 'input': {'mesh_shape': mesh, 'num_tasks': nt, 'num_tpu_devices_per_task': nd, 'device_coordinates': co, 'serialized_hex': p.SerializeToString().hex()}}
        try:
            t = T.Topology(serialized=p.SerializeToString())
            case['output'] = {'device_coordinates': t.device_coordinates.tolist()}
        except Exception as e:
            case['error'] = {'type': type(e).__name__, 'message': message_of(e)}
        cases.append(case)
    for mesh, co in (([1, 1, 1, 2], [[[0, 0, 0, 0], [0, 0, 0, 1]]]), ([1, 1, 1, 2], [[[0, 0, 0, 1]], [[0, 0, 0, 0]]]), ([2, 1, 1, 1], [[[0, 0, 0, 0], [0, 0, 0, 0]]]), ([2, 2], [[[0, 0]]]), ([2, 1, 1, 1], [])):
        case = {'name': 'topology of mesh %s at %s' % (mesh, co), 'kind': 'topology', 'input': {'mesh_shape': mesh, 'device_coordinates': co}}
        try:
            t = T.Topology(mesh_shape=mesh, device_coordinates=np.array(co, dtype=np.int32))
            case['output'] = {'device_coordinates': t.device_coordinates.tolist()}
        except Exception as e:
            case['error'] = {'type': type(e).__name__, 'message': message_of(e)}
        cases.append(case)
    rings = {'%dx%dx%d' % m: [list(map(int, c)) for c in A._ring_3d(*m)] for m in ((1, 1, 1), (1, 1, 5), (3, 3, 3), (5, 1, 1), (2, 3, 2), (4, 1, 1), (1, 4, 4), (4, 1, 4), (6, 6, 6), (2, 2, 6), (8, 4, 2), (1, 7, 2), (10, 2, 2), (1, 2, 2), (2, 1, 2), (1, 1, 2), (2, 2, 2), (12, 2, 1), (1, 6, 4), (8, 1, 6))}
    json.dump({'oracle': 'tensorflow', 'generator': 'generate.py', 'conventions': 'the form of device_assignment.json', 'topologies': {k: base.described(t) for k, t in tops.items()}, 'ring_3d': rings, 'cases': cases}, open(path, 'w'))
