package remat

import (
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Policy selects the values of a forward pass that are kept for the backward pass. All other values
// are recomputed. The zero value is [Everything]. A Policy is immutable.
type Policy struct{ policy region.RematPolicy }

// Everything keeps all values that the backward pass reads.
func Everything() Policy { return Policy{} }

// Nothing keeps only the inputs of the block.
func Nothing() Policy { return Policy{region.RematPolicy{Selective: true}} }

// Products keeps the results of dot products and convolutions.
func Products() Policy { return Policy{region.RematPolicy{Selective: true, Products: true}} }

// Names keeps the tensors with one of the given names, which [Name] assigns. Each name must be the
// name of a tensor in the block; otherwise, building the block panics.
func Names(names ...string) Policy {
	return Policy{region.RematPolicy{Selective: true, Names: slices.Clone(names)}}
}

// And returns a policy that keeps all values that p or other keeps. The values are kept on the host
// if one of the two policies is OnHost.
func (p Policy) And(other Policy) Policy {
	if !p.policy.Selective || !other.policy.Selective {
		return Policy{region.RematPolicy{OnHost: p.policy.OnHost || other.policy.OnHost}}
	}
	k := region.RematPolicy{Selective: true, Products: p.policy.Products || other.policy.Products,
		Names: slices.Clone(p.policy.Names), OnHost: p.policy.OnHost || other.policy.OnHost}
	for _, name := range other.policy.Names {
		if !slices.Contains(k.Names, name) {
			k.Names = append(k.Names, name)
		}
	}
	return Policy{k}
}

// OnHost returns a policy that keeps the selected values in pinned host memory instead of device
// memory. It is only for loops over layers (package loop). The values of each layer and its inputs
// are copied to the host in the forward pass and back in the backward pass, while the devices
// compute. Results do not change. OnHost is not supported by blocks, nor by loops on CPU devices;
// they fail with an error that matches errors.ErrUnsupported.
func (p Policy) OnHost() Policy {
	p.policy.OnHost = true
	return p
}

// RegionPolicy returns the policy as a region.RematPolicy, for the packages that build blocks and
// loops.
func (p Policy) RegionPolicy() region.RematPolicy {
	k := p.policy
	k.Names = slices.Clone(k.Names)
	return k
}

// String returns the Go expression of the policy, such as Products() or Names("attention").
func (p Policy) String() string {
	var parts []string
	if p.policy.Products {
		parts = append(parts, "Products()")
	}
	if len(p.policy.Names) > 0 {
		parts = append(parts, `Names("`+strings.Join(p.policy.Names, `", "`)+`")`)
	}
	text := "Nothing()"
	switch {
	case !p.policy.Selective:
		text = "Everything()"
	case len(parts) == 1:
		text = parts[0]
	case len(parts) == 2:
		text = parts[0] + ".And(" + parts[1] + ")"
	}
	if p.policy.OnHost {
		text += ".OnHost()"
	}
	return text
}
