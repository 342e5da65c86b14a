package module

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// groups writes the replica groups: partition r*P + p is logical device p of
// replica r, and one group holds the partitions of one logical device.
func (w *writer) groups() string {
	var b strings.Builder
	b.WriteString("dense<[")
	for p := range w.logicalDevices {
		if p > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('[')
		for r := range w.replicas {
			if r > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Itoa(r*w.logicalDevices + p))
		}
		b.WriteByte(']')
	}
	fmt.Fprintf(&b, "]> : tensor<%dx%dxi64>", w.logicalDevices, w.replicas)
	return b.String()
}

// logicalGroups writes groups of the partitions of one replica.
func (w *writer) logicalGroups() string {
	groups := make([]string, w.replicas)
	for r := range groups {
		partitions := make([]string, w.logicalDevices)
		for p := range partitions {
			partitions[p] = strconv.Itoa(r*w.logicalDevices + p)
		}
		groups[r] = "[" + strings.Join(partitions, ", ") + "]"
	}
	return fmt.Sprintf("dense<[%s]> : tensor<%dx%dxi64>", strings.Join(groups, ", "), w.replicas, w.logicalDevices)
}

// logicalAxes writes the logical axes as a list of names.
func (w *writer) logicalAxes() string {
	names := w.factors.Names()
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return strings.Join(names, ", ")
}

// replicated writes the sharding of a tensor that is whole on each device.
func (w *writer) replicated(rank int) string { return sharding.Replicated(rank).ShardyBare(meshName) }

// stacked writes the sharding of a tensor whose leading dimension counts the
// logical devices. rank includes that dimension.
func (w *writer) stacked(rank int) string {
	dims := make([]sharding.Dim, rank)
	dims[0].Axes = w.factors.Names()
	return sharding.NewSpec(dims...).ShardyBare(meshName)
}

// stack is a tensor type with a leading dimension: tensor<2x8xf32> for
// tensor<8xf32> and 2.
func stack(typ string, n int) string {
	return fmt.Sprintf("tensor<%dx%s", n, strings.TrimPrefix(typ, "tensor<"))
}

// tensorType is typ with other dimensions.
func tensorType(typ string, dims []int) string {
	element := scalarType(typ)
	for _, dim := range slices.Backward(dims) {
		element = stack(element, dim)
	}
	return element
}

// dimsOf reads the dimensions of a tensor type.
func dimsOf(typ string) []int {
	var dims []int
	inner := strings.TrimPrefix(typ, "tensor<")
	for {
		dim, rest, ok := strings.Cut(inner, "x")
		n, err := strconv.Atoi(dim)
		if !ok || err != nil {
			return dims
		}
		dims, inner = append(dims, n), rest
	}
}

func rankOf(typ string) int { return len(dimsOf(typ)) }

func equal(a, b []int) bool { return slices.Equal(a, b) }
