package strategy

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/engine/wire"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Shard describes what one device holds of a value or of a variable.
type Shard struct {
	// Replica and LogicalDevice say which device it is, Device is the device's name.
	Replica, LogicalDevice int
	Device                 string
	// Process is the process that the device belongs to.
	Process int
	// Start is the first index of the replica's tensor that the device holds, in each dimension;
	// Size is the number of indices that it holds.
	Start, Size []int
	// Bytes is the device memory that the shard takes.
	Bytes int
}

// String says which indices are on which device, such as "[0:4 0:8] on /job:worker/...".
func (s Shard) String() string {
	ranges := make([]string, len(s.Start))
	for i, start := range s.Start {
		ranges[i] = fmt.Sprintf("%d:%d", start, start+s.Size[i])
	}
	return fmt.Sprintf("%v on %s", ranges, s.Device)
}

// shards lists the devices that hold something. Buffers of this process are asked for their sizes;
// those of others hold as much.
func (v *deviceValue) shards(buffers mesh.Buffers) []Shard {
	s := v.strategy
	l, err := v.layout()
	if err != nil {
		return nil
	}
	var all []Shard
	var names []string // of a replica's devices
	for d := range s.machine.All {
		if d%s.logicalDevices == 0 {
			names, _ = s.names(d / s.logicalDevices)
		}
		if !v.on(d) || len(buffers) == 0 {
			continue
		}
		shard := Shard{Replica: d / s.logicalDevices, LogicalDevice: d % s.logicalDevices, Process: s.machine.Of[d], Bytes: l.PartBytes}
		shard.Device = names[shard.LogicalDevice]
		shard.Start, shard.Size = l.At(d)
		if b := buffers[d]; b != nil {
			if dims := b.Dims(); len(dims) == len(shard.Size) && !l.IsCut() { // which may be padded
				copy(shard.Size, dims)
			}
			if id := b.Device().ID(); id != s.machine.All[d].ID() { // it would be elsewhere
				shard.Device = fmt.Sprintf("device %d", id)
			}
		}
		all = append(all, shard)
	}
	return all
}

// Shards lists the devices that hold the value and what each of them holds, by replica, then by
// logical device. The list is empty for a closed value, and ahead of time.
func (v *deviceValue) Shards() []Shard {
	buffers, err := v.live()
	if err != nil {
		return nil
	}
	return v.shards(buffers)
}

// Shards lists the devices that hold the variable and what each of them holds, by replica, then by
// logical device: a part on each logical device for a variable that is split, otherwise a whole
// copy on each, also for a variable that is assigned to one of them. The list is empty for a closed
// variable, and ahead of time.
func (v *Variable) Shards() []Shard {
	v.strategy.machine.Launch.Lock()
	defer v.strategy.machine.Launch.Unlock()
	if v.live() != nil {
		return nil
	}
	return v.value().shards(v.buffers)
}

// layout is how a replica's tensor lies on its logical devices. A scalar that each replica has of its
// own is a vector of one element on the devices.
func (s *TPUStrategy) layout(dtype dtypes.DType, shape []int, a logical.Annotation, perReplica bool) (*mesh.Layout, error) {
	t, err := wire.Of(dtype)
	if err != nil {
		return nil, err
	}
	if err := a.ValidateOn(s.axes, "", shape); err != nil {
		return nil, err
	}
	if !a.Divides(s.axes) {
		l := mesh.Whole(t, shape, s.logicalDevices)
		if perReplica && len(shape) == 0 {
			l = l.AsVector()
		}
		return l, nil
	}
	factors, err := logical.Cut(s.axes, a)
	if err != nil {
		return nil, err
	}
	group, err := sharding.NewMesh(factors.Axes()...)
	if err != nil {
		return nil, err
	}
	return mesh.New(t, shape, group, a.Spec(len(shape), factors))
}

// layout is how a value or a variable lies on the devices.
func (v *deviceValue) layout() (*mesh.Layout, error) {
	l, err := v.strategy.layout(v.dtype, v.shape, v.annotation, v.perReplica)
	if err != nil || !v.over.Is() {
		return l, err
	}
	return l.CutOver(v.over.Dim, v.strategy.replicas), nil
}
