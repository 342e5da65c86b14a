package logical_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func ExampleFactorAxes_pieces() {
	devices, _ := logical.NewMesh(8)
	factors, err := logical.FactorAxes(devices, logical.SplitInto(2, 4), logical.SplitInto(1, 8))
	mesh, _ := sharding.NewMesh(factors.Axes()...)
	fmt.Println(mesh, factors.Names(), err)
	fmt.Println(logical.SplitInto(1, 8).Spec(2, factors))
	six, _ := logical.NewMesh(6)
	_, err = logical.FactorAxes(six, logical.SplitInto(2, 3), logical.SplitInto(3, 2))
	fmt.Println(err)
	// Output:
	// logical.0=2,logical.1=4 [logical.0 logical.1] <nil>
	// -,logical.0+logical.1
	// logical: split: the splits of the step divide the 6 logical devices into both 2 and 3 groups; one number of groups must be a multiple of the other, as 2 and 4
}

// Device i of a split holds the shard at the row-major coordinates of i, independent of how other
// splits of the step divide the axis.
func TestSplitPartsAreInRowMajorOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		devices := 1 << rng.IntN(5)
		annotations := make([]logical.Annotation, 1+rng.IntN(3))
		for i := range annotations {
			parts, left := make([]int, 1+rng.IntN(3)), devices
			for d := range parts {
				parts[d] = 1 << rng.IntN(5)
				for left%parts[d] != 0 {
					parts[d] /= 2
				}
				if d == len(parts)-1 {
					parts[d] = left
				}
				left /= parts[d]
			}
			annotations[i] = logical.SplitInto(parts...)
		}
		logicalMesh := newMesh(t, devices)
		factors, err := logical.FactorAxes(logicalMesh, annotations...)
		require.NoError(t, err)
		mesh, err := sharding.NewMesh(factors.Axes()...)
		require.NoError(t, err)
		require.Equal(t, devices, mesh.Size())
		for _, a := range annotations {
			parts := a.Parts()
			shape := make([]int, len(parts))
			for d := range shape {
				shape[d] = parts[d] * (1 + rng.IntN(3))
			}
			require.NoError(t, a.ValidateOn(logicalMesh, "x", shape))
			for device := range devices {
				ranges, err := sharding.IndexRanges(mesh, a.Spec(len(shape), factors), shape, device)
				require.NoError(t, err)
				rest := device
				for d := len(parts) - 1; d >= 0; d-- {
					at := rest % parts[d]
					rest /= parts[d]
					require.Equal(t, at*shape[d]/parts[d], ranges[d].Start, "%s of %v on device %d", a, shape, device)
				}
			}
		}
	}
}
