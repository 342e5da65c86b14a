"""Device assignments of random slices, shapes and strides."""

import json
import random

import numpy as np
from tensorflow.python.tpu import device_assignment as assignment_lib
from tensorflow.python.tpu import topology as topology_lib

from common import message_of


def slice_of(mesh, block):
    """The coordinates of each host's devices; a host has a block of chips."""
    x, y, z, cores = mesh
    bx, by, bz = [min(b, m) for b, m in zip(block, (x, y, z))]
    tasks = []
    for z0 in range(0, z, bz):
        for y0 in range(0, y, by):
            for x0 in range(0, x, bx):
                tasks.append([[x0 + dx, y0 + dy, z0 + dz, c] for dz in range(bz) for dy in range(by) for dx in range(bx) for c in range(cores)])
    return tasks


SLICES = {
    "v2-8": ([2, 2, 1, 2], (2, 2, 1)), "v3-32": ([4, 4, 1, 2], (2, 2, 1)), "v2-32_2x8": ([2, 8, 1, 2], (2, 2, 1)), "v4-16_2x2x2": ([2, 2, 2, 1], (2, 2, 1)),
    "v4-64_2x4x4": ([2, 4, 4, 1], (2, 2, 1)), "v5e-4_2x2": ([2, 2, 1, 1], (2, 2, 1)), "v5e-32_4x8": ([4, 8, 1, 1], (2, 2, 1)), "odd_3x3": ([3, 3, 1, 1], (3, 1, 1)),
    "line_1x6": ([1, 6, 1, 1], (1, 2, 1)), "flat_1x4x4": ([1, 4, 4, 1], (1, 2, 2)), "cube_4x2x2x2": ([4, 2, 2, 2], (2, 2, 1)), "one_core": ([1, 1, 1, 1], (1, 1, 1)),
}


def topology_of(name):
    mesh, block = SLICES[name]
    tasks = slice_of(mesh, block)
    if name.endswith("missing"):
        tasks = tasks[:-1]
    return topology_lib.Topology(mesh_shape=mesh, device_coordinates=np.array(tasks, dtype=np.int32))


def described(t):
    inverse = []
    mesh = t.mesh_shape.tolist()
    for index in np.ndindex(*mesh):
        task = int(t._topology_tasks[index])
        if task >= 0:
            c = list(index)
            inverse.append({"coordinates": c, "task": task, "ordinal": int(t._topology_devices[index]), "cpu": t.cpu_device_name_at_coordinates(c, job="worker"),
                            "tpu": t.tpu_device_name_at_coordinates(c, job="worker")})
        else:
            inverse.append({"coordinates": list(index), "task": -1, "ordinal": -1})
    return {"mesh_shape": mesh, "device_coordinates": t.device_coordinates.tolist(), "mesh_rank": t.mesh_rank, "num_tasks": t.num_tasks,
            "num_tpus_per_task": t.num_tpus_per_task, "missing_devices": t.missing_devices.tolist(), "serialized_hex": t.serialized().hex(), "inverse": inverse}


def outcome(a):
    n, p = a.num_replicas, a.num_cores_per_replica
    grid = [[(r, k) for k in range(p)] for r in range(n)]
    out = {"num_replicas": n, "num_cores_per_replica": p, "core_assignment": a.core_assignment.tolist()}
    for key, f in (("task", lambda r, k: int(a.topology.task_ordinal_at_coordinates(a.coordinates(r, k)))), ("tpu_ordinal", lambda r, k: int(a.tpu_ordinal(replica=r, logical_core=k))),
                   ("tpu_device", lambda r, k: a.tpu_device(replica=r, logical_core=k, job="worker")), ("host_device", lambda r, k: a.host_device(replica=r, logical_core=k, job="worker"))):
        out[key] = [[f(r, k) for r, k in row] for row in grid]
    out["tpu_device_no_job_0_0"], out["host_device_no_job_0_0"] = a.tpu_device(), a.host_device()
    found = {}
    for task in range(a.topology.num_tasks):
        for core in range(p):
            try:
                found["%d/%d" % (task, core)] = list(a.lookup_replicas(task, core))
            except ValueError as e:
                found["%d/%d" % (task, core)] = {"error": str(e)}
    out["lookup_replicas"] = found
    return out


def write(path):
    rng = random.Random(5)
    SLICES["v3-32_missing"] = SLICES["v3-32"]
    topologies = {name: topology_of(name) for name in SLICES}
    cases, counts = [], {}
    while len(cases) < 220:
        name = rng.choice(list(SLICES))
        mesh = SLICES[name][0]
        shape = [rng.choice([1, 1, 2, m]) for m in mesh]
        stride = [rng.choice([1, 1, 1, 2]) for _ in mesh] if rng.random() < .35 else None
        if rng.random() < .08:
            shape[rng.randrange(4)] = rng.choice([0, -1, 5])
        if rng.random() < .05:
            shape = shape[:3]
        if stride and rng.random() < .1:
            stride[rng.randrange(4)] = rng.choice([0, -2])
        fits = 1
        for m, s in zip(mesh, shape):
            fits *= max(m // max(s, 1), 1)
        n = rng.choice([fits, fits, max(fits // 2, 1), rng.randint(1, fits + 1), fits + 1])
        mode = rng.choice(["AUTO", "AUTO", "RING", "MESH"])
        case = {"name": "%s %s%s n=%d %s" % (name, shape, " stride %s" % stride if stride else "", n, mode), "kind": "build",
                "input": {"topology": name, "computation_shape": shape, "computation_stride": stride, "num_replicas": n, "device_order_mode": mode}}
        try:
            case["output"] = outcome(assignment_lib.DeviceAssignment.build(
                topologies[name], computation_shape=shape, computation_stride=stride, num_replicas=n, device_order_mode=assignment_lib.DeviceOrderMode[mode]))
        except Exception as e:
            case["error"] = {"type": type(e).__name__, "message": message_of(e)}
            if counts.get("error", 0) > 60:
                continue
            counts["error"] = counts.get("error", 0) + 1
        cases.append(case)
    for cores in ([[[0, 0, 0, 0]], [[1, 1, 0, 1]]], [[[0, 1, 0, 0], [1, 1, 0, 0]]], [[[0, 0, 0, 0]], [[0, 0, 0, 0]]], [[[0, 0, 0, 2]]], [[[-1, 0, 0, 0]]], [[[0, 0, 0]]], [[0, 0, 0, 0]]):
        case = {"name": "DeviceAssignment: %s" % cores, "kind": "ctor", "input": {"topology": "v2-8", "core_assignment": cores}}
        try:
            case["output"] = outcome(assignment_lib.DeviceAssignment(topologies["v2-8"], np.array(cores, dtype=np.int32)))
        except Exception as e:
            case["error"] = {"type": type(e).__name__, "message": message_of(e)}
        cases.append(case)
    for n, task, core in ((2, 1, 0), (4, 0, 3), (8, 2, 0)):
        a = assignment_lib.DeviceAssignment.build(topologies["v2-8"], num_replicas=n)
        try:
            a.lookup_replicas(task, core)
        except ValueError as e:
            cases.append({"name": "DeviceAssignment: lookup_replicas of task %d, core %d of %d replicas" % (task, core, n), "kind": "lookup",
                          "input": {"topology": "v2-8", "build": {"num_replicas": n}, "task": task, "core": core}, "error": {"type": "ValueError", "message": str(e)}})
    for mesh, coords in (([2, 2, 1, 0], [[[0, 0, 0, 0]]]), ([2, 2, 1], [[[0, 0, 0]]]), ([2, 2, 1, 2], [[0, 0, 0, 0]]), ([2, 2, 1, 2], [[[2, 0, 0, 0]]]), ([-1, 2, 1, 2], [[[0, 0, 0, 0]]])):
        try:
            topology_lib.Topology(mesh_shape=mesh, device_coordinates=np.array(coords, dtype=np.int32))
        except Exception as e:
            cases.append({"name": "Topology: mesh %s, coordinates %s" % (mesh, coords), "kind": "topology", "input": {"mesh_shape": mesh, "device_coordinates": coords},
                          "error": {"type": type(e).__name__, "message": message_of(e)}})
    rings = {"%dx%dx%d" % m: [list(map(int, c)) for c in assignment_lib._ring_3d(*m)] for m in ((1, 1, 8), (2, 2, 4), (4, 2, 1), (1, 2, 6), (6, 1, 2), (2, 6, 2), (3, 2, 2), (8, 1, 1), (4, 6, 2))}
    with open(path, "w") as f:
        json.dump({"oracle": "tensorflow", "generator": "generate.py", "conventions": "the form of device_assignment.json",
                   "topologies": {k: described(t) for k, t in topologies.items()}, "ring_3d": rings, "cases": cases}, f)
        f.write("\n")
