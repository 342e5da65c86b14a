package lowering

import "github.com/gomlx/go-xla/stablehlo"

// BuilderOf returns the function of the StableHLO builder that contains f's ops.
func BuilderOf(f *Function) *stablehlo.Function { return f.fn }
