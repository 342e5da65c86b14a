"""Adds the texts of HloSharding to the cases of a file, with jaxlib.

    python hlo.py sharding.json
"""

import json
import sys

from jax._src.lib import xla_client

with open(sys.argv[1]) as f:
    data = json.load(f)
for case in data["cases"]:
    if "output" in case:
        proto = xla_client.OpSharding()
        proto.ParseFromString(bytes.fromhex(case["output"]["serialized_hex"]))
        try:
            sharding = xla_client.HloSharding.from_proto(proto)
        except Exception as e:
            case["output"]["hlo_error"] = str(e)
            continue
        case["output"]["hlo_sharding"] = str(sharding)
        case["output"]["hlo_roundtrip_hex"] = sharding.to_proto().SerializeToString().hex()
with open(sys.argv[1], "w") as f:
    json.dump(data, f)
    f.write("\n")
