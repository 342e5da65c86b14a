"""Writes cases by running TensorFlow.

    python generate.py DIR [PART ...]

The parts are values, variables, input, control, assignment, sharding and graph, and
forms, nested, resolver, slices, shards and meshes, which vary dtypes, shapes, nests, names,
slices and meshes; all of them without a name. Afterwards, where jaxlib is:

    python hlo.py DIR/sharding.json
    python hlo.py DIR/shards.json
    python hlo.py DIR/meshes.json
"""

import importlib
import sys

from common import Cases

PARTS = ("values", "variables", "input", "control", "assignment", "sharding", "graph", "forms", "nested", "resolver", "slices", "shards", "meshes")
CONVENTIONS = "the form of strategy_semantics.json"


def main(folder, *parts):
    for part in parts or PARTS:
        module = importlib.import_module(part + "_cases")
        path = "%s/%s.json" % (folder, part)
        if hasattr(module, "write"):
            module.write(path)
            continue
        cases = Cases()
        module.run(cases)
        cases.write(path, "generate.py", CONVENTIONS)


if __name__ == "__main__":
    main(*sys.argv[1:])
