package strategy

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// A captured variable is what regions know as a held variable: what a layer or a block writes to it
// leaves the region as a result.
var _ region.Held = (*captured)(nil)

// Name implements region.Held.
func (c *captured) Name() string { return c.variable.path }

// Parameter implements region.Held.
func (c *captured) Parameter() *graph.Node { return c.first }

// Now implements region.Held.
func (c *captured) Now() *graph.Node { return c.now }

// Set implements region.Held.
func (c *captured) Set(x *graph.Node) {
	c.now, c.changed = x, x != c.first
	if c.wrote != nil {
		c.wrote(x)
	}
}

// PerReplica reports whether each replica has its own.
func (c *captured) PerReplica() bool { return c.variable.perReplica() }

// heldVariables lists the variables that the step met.
func (rc *ReplicaContext) heldVariables() []region.Held {
	all := make([]region.Held, len(rc.captured))
	for i, c := range rc.captured {
		all[i] = c
	}
	return all
}
