package remat

import (
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Policy says which values of a forward pass are kept for its backward pass, which computes the
// others again. The zero value is [Everything]. A Policy is immutable.
type Policy struct{ keep region.Keep }

// Everything keeps all that the backward pass reads.
func Everything() Policy { return Policy{} }

// Nothing keeps nothing but what enters the block.
func Nothing() Policy { return Policy{region.Keep{Some: true}} }

// Products keeps the results of dot products and of convolutions.
func Products() Policy { return Policy{region.Keep{Some: true, Products: true}} }

// Names keeps the tensors that [Name] gave one of the names. Each of them must be the name of a
// tensor of the block.
func Names(names ...string) Policy {
	return Policy{region.Keep{Some: true, Names: slices.Clone(names)}}
}

// And returns a policy that keeps what either policy keeps, on the host if either does.
func (p Policy) And(other Policy) Policy {
	if !p.keep.Some || !other.keep.Some {
		return Policy{region.Keep{Host: p.keep.Host || other.keep.Host}}
	}
	k := region.Keep{Some: true, Products: p.keep.Products || other.keep.Products, Names: slices.Clone(p.keep.Names), Host: p.keep.Host || other.keep.Host}
	for _, name := range other.keep.Names {
		if !slices.Contains(k.Names, name) {
			k.Names = append(k.Names, name)
		}
	}
	return Policy{k}
}

// OnHost returns the policy with what it keeps in the host's memory, pinned, instead of the devices'.
// It is for loops of layers (package loop): each layer's kept values are copied there in the forward
// pass and back in the backward pass, with what entered the layer, while the devices compute.
// Numbers stay. Blocks refuse it, and so do loops on CPU devices, whose memory is the host's: with an
// error that matches errors.ErrUnsupported.
func (p Policy) OnHost() Policy {
	p.keep.Host = true
	return p
}

// Keep returns the policy in the form of the packages that trace regions.
func (p Policy) Keep() region.Keep {
	k := p.keep
	k.Names = slices.Clone(k.Names)
	return k
}

// String returns how the policy is written, such as Products() or Names("attention").
func (p Policy) String() string {
	var parts []string
	if p.keep.Products {
		parts = append(parts, "Products()")
	}
	if len(p.keep.Names) > 0 {
		parts = append(parts, `Names("`+strings.Join(p.keep.Names, `", "`)+`")`)
	}
	text := "Nothing()"
	switch {
	case !p.keep.Some:
		text = "Everything()"
	case len(parts) == 1:
		text = parts[0]
	case len(parts) == 2:
		text = parts[0] + ".And(" + parts[1] + ")"
	}
	if p.keep.Host {
		text += ".OnHost()"
	}
	return text
}
