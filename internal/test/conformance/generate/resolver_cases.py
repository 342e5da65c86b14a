"""Cluster resolvers: names, addresses, environments and what the TPU service says."""

import os

from tensorflow.python.distribute.cluster_resolver.tpu import tpu_cluster_resolver

from common import attempt


class _Request:
    def __init__(self, node):
        self.node = node

    def execute(self):
        return self.node


class _Service:
    """The TPU service, whose nodes are given."""

    def __init__(self, nodes):
        self.nodes, self.calls = nodes, 0

    def get(self, name):
        self.calls += 1
        if name not in self.nodes:
            raise KeyError("Resource %s was not found" % name)
        return _Request(self.nodes[name])


def service(nodes):
    made = _Service(nodes)

    class Locations:
        nodes = staticmethod(lambda: made)

    class Projects:
        locations = staticmethod(Locations)

    class Top:
        projects = staticmethod(Projects)
    return Top(), made


KEYS = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_API_DISCOVERY_URL")


def resolve(inputs):
    for k in KEYS:
        os.environ.pop(k, None)
    os.environ.update(inputs.get("env", {}))
    top, made = service(inputs.get("nodes", {}))
    more = {k: inputs[k] for k in ("job_name", "coordinator_name", "coordinator_address", "tpu") if k in inputs}
    r = tpu_cluster_resolver.TPUClusterResolver(project=inputs.get("project", "p"), zone=inputs.get("zone", "z"), credentials=None, service=top, **more)
    spec = r.cluster_spec()
    out = {"master": r.master(), "get_master": r.get_master(), "cluster_spec": spec.as_dict(), "task_type": r.task_type, "task_id": r.task_id, "job": r.get_job_name(),
           "leader": r.get_coordination_service_leader(), "environment": r.environment, "hardware_feature": None, "api": made.calls > 0}
    return out


NODE = "projects/p/locations/z/nodes/"


def run(cases):
    def add(name, **inputs):
        cases.add("cluster_resolver", name, "-", inputs, attempt(lambda: resolve(inputs)))

    def node(**more):
        return dict({"state": "READY", "health": "HEALTHY"}, **more)
    ends = [{"ipAddress": "10.2.3.%d" % i, "port": "8470"} for i in (4, 5, 6, 7)]
    add("grpc address", tpu="grpc://10.1.2.3:8470")
    add("grpc address without a port", tpu="grpc://10.1.2.3")
    add("grpc address of another port", tpu="grpc://10.1.2.3:9000")
    add("host name", tpu="grpc://tpu-host.example.com:8470")
    add("list of one address", tpu=["grpc://10.1.2.3:8470"])
    add("list of addresses", tpu=["grpc://10.1.2.3:8470", "grpc://10.1.2.4:8470"])
    add("list of names", tpu=["a", "b"])
    add("list of a name", tpu=["t"], nodes={NODE + "t": node(ipAddress="10.1.2.3", port="8470")})
    add("empty string, nothing in the environment", tpu="")
    add("nothing given, nothing in the environment")
    add("empty string, env TPU_NAME", tpu="", env={"TPU_NAME": "grpc://10.9.9.9:8470"})
    add("address given, env TPU_NAME too", tpu="grpc://10.1.2.3:8470", env={"TPU_NAME": "grpc://10.9.9.9:8470"})
    add("env KUBE, several without ports", env={"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://10.1.2.3,grpc://10.1.2.4"})
    add("env TPU_NAME is a node", env={"TPU_NAME": "t"}, nodes={NODE + "t": node(ipAddress="10.1.2.3", port="8470")})
    add("env TPU_NAME is local", env={"TPU_NAME": "local"})
    add("named, network endpoints", tpu="t", nodes={NODE + "t": node(networkEndpoints=ends[:1])})
    add("named, pod of four workers", tpu="pod", nodes={NODE + "pod": node(networkEndpoints=ends, acceleratorType="v3-32")})
    add("named, pod of two, with a coordinator", tpu="pod", nodes={NODE + "pod": node(networkEndpoints=ends[:2])}, coordinator_name="coordinator", coordinator_address="10.0.0.1:1234")
    add("named, another project and zone", tpu="t", project="q", zone="us-x", nodes={"projects/q/locations/us-x/nodes/t": node(ipAddress="10.1.2.3", port="8470")})
    add("named, not found", tpu="t", nodes={})
    add("named, another is there", tpu="t", nodes={NODE + "u": node(ipAddress="10.1.2.3", port="8470")})
    for state in ("CREATING", "STARTING", "STOPPED", "DELETING", "PREEMPTED", "TERMINATED", "REPAIRING", "RESTARTING", "HIDDEN", None):
        n = {"health": "HEALTHY", "ipAddress": "10.1.2.3", "port": "8470"}
        if state:
            n["state"] = state
        add("named, state %s" % state, tpu="t", nodes={NODE + "t": n})
    for health in ("UNHEALTHY", "TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE", "HEALTH_UNSPECIFIED", "", None):
        n = {"state": "READY", "ipAddress": "10.1.2.3", "port": "8470"}
        if health is not None:
            n["health"] = health
        add("named, health %s" % health, tpu="t", nodes={NODE + "t": n})
    add("named, no endpoints", tpu="t", nodes={NODE + "t": node()})
    add("named, empty endpoints", tpu="t", nodes={NODE + "t": node(networkEndpoints=[])})
    add("named, other job name", tpu="t", job_name="tpu_worker", nodes={NODE + "t": node(networkEndpoints=ends[:2])})
    add("local, with a coordinator", tpu="local", coordinator_name="coordinator", coordinator_address="10.0.0.1:1234")
    add("local, another job name", tpu="local", job_name="tpu_worker")
    add("an address and a name in one string", tpu="grpc://10.1.2.3:8470,t")
    add("a name that looks like an address", tpu="10.1.2.3:8470", nodes={})
    add("uppercase scheme", tpu="GRPC://10.1.2.3:8470")
    add("uptc address", tpu="uptc://10.1.2.3:8470")
    add("/bns address", tpu="/bns/xx/yy")
