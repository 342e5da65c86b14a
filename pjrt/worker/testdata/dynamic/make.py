"""Writes the bytecode (.mlirbc) and the portable artifact (.vhlo) of each program (.mlir): make.py DIR. It needs JAX."""
import glob
import io
import sys

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

for path in sorted(glob.glob(sys.argv[1] + "/*.mlir")):
    with mlir.make_ir_context(), open(path) as source:
        module = ir.Module.parse(source.read())
        out = io.BytesIO()
        module.operation.write_bytecode(out)
        with open(path + "bc", "wb") as f:
            f.write(out.getvalue())
        artifact = stablehlo.serialize_portable_artifact(module, stablehlo.get_minimum_version())
        with open(path[: -len("mlir")] + "vhlo", "wb") as f:
            f.write(artifact)
        print(path)
