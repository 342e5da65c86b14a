"""Keeps a sample of the written cases, chosen by their text, so that a case stays when others come.

    python sample.py FROM TO N

About one case in N of each file in FROM goes to the file of that name in TO.
"""

import hashlib
import json
import os
import sys


def kept(case, n):
    key = [case.get(k) for k in ("section", "kind", "name", "strategy", "input", "inputs")]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") % n == 0


def main(source, target, n):
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(source)):
        if not name.endswith(".json"):
            continue
        with open(os.path.join(source, name)) as f:
            data = json.load(f)
        cases = [c for c in data.pop("cases") if kept(c, int(n))]
        # A line for each case.
        head = json.dumps(data, separators=(",", ":"))[:-1]
        with open(os.path.join(target, name), "w") as f:
            f.write(head + ',"cases":[\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
            f.write("\n]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
