package lowering

import "github.com/gomlx/go-xla/stablehlo"

// BuilderOf is the function of the StableHLO builder in which f's ops are.
func BuilderOf(f *Function) *stablehlo.Function { return f.fn }
