package strategy

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/wire"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Shard describes the shard of a value or of a variable on one device.
type Shard struct {
	// Replica and LogicalDevice identify the device; Device is its name.
	Replica, LogicalDevice int
	Device                 string
	// Process is the process that the device belongs to.
	Process int
	// Start is the first index of the shard in the replica's tensor, and Size the number of
	// indices, in each dimension.
	Start, Size []int
	// Bytes is the size of the shard in device memory.
	Bytes int
}

// String returns the index ranges and the device, such as "[0:4 0:8] on /job:worker/...".
func (s Shard) String() string {
	ranges := make([]string, len(s.Start))
	for i, start := range s.Start {
		ranges[i] = fmt.Sprintf("%d:%d", start, start+s.Size[i])
	}
	return fmt.Sprintf("%v on %s", ranges, s.Device)
}

// shards lists the shards. The sizes are queried from this process's buffers; shards of other
// processes are assumed to have the size of the layout.
func (v *deviceValue) shards(buffers engine.Buffers) []Shard {
	s := v.strategy
	l, err := v.layout()
	if err != nil {
		return nil
	}
	var all []Shard
	var names []string // of one replica's devices
	for d := range s.runtime.All {
		if d%s.logicalDevices == 0 {
			names, _ = s.deviceNames(d / s.logicalDevices)
		}
		if !v.hasPartition(d) || len(buffers) == 0 {
			continue
		}
		shard := Shard{Replica: d / s.logicalDevices, LogicalDevice: d % s.logicalDevices, Process: s.runtime.Of[d],
			Bytes: l.ShardBytes}
		shard.Device = names[shard.LogicalDevice]
		shard.Start, shard.Size = l.ShardBounds(d)
		if b := buffers[d]; b != nil {
			if dims := b.Dims(); len(dims) == len(shard.Size) && !l.IsSplitOverGroups() { // a sharded buffer may be padded
				copy(shard.Size, dims)
			}
			if id := b.Device().ID(); id != s.runtime.All[d].ID() { // report an unexpected device
				shard.Device = fmt.Sprintf("device %d", id)
			}
		}
		all = append(all, shard)
	}
	return all
}

// Shards lists the devices that have the value and the shard on each of them, by replica, then by
// logical device. The list is empty for a closed value, and ahead of time.
func (v *deviceValue) Shards() []Shard {
	buffers, err := v.openBuffers()
	if err != nil {
		return nil
	}
	return v.shards(buffers)
}

// Shards lists the devices that have the variable and the shard on each of them, by replica, then
// by logical device. A variable that is not split, or is assigned to one logical device, has a
// complete copy on each device. The list is empty for a closed variable, and ahead of time.
func (v *Variable) Shards() []Shard {
	v.strategy.runtime.Launch.Lock()
	defer v.strategy.runtime.Launch.Unlock()
	if v.checkOpen() != nil {
		return nil
	}
	return v.asDeviceValue().shards(v.buffers)
}

// layout returns the layout of a replica's tensor on its logical devices. A per-replica scalar is a
// vector with one element on the devices.
func (s *TPUStrategy) layout(dtype dtypes.DType, shape []int, a logical.Annotation,
	perReplica bool) (*engine.Layout, error) {
	t, err := wire.Of(dtype)
	if err != nil {
		return nil, err
	}
	if err := a.ValidateOn(s.axes, "", shape); err != nil {
		return nil, err
	}
	if !a.IsSharded(s.axes) {
		l := engine.NewReplicatedLayout(t, shape, s.logicalDevices)
		if perReplica && len(shape) == 0 {
			l = l.AsVector()
		}
		return l, nil
	}
	factors, err := logical.FactorAxes(s.axes, a)
	if err != nil {
		return nil, err
	}
	group, err := sharding.NewMesh(factors.Axes()...)
	if err != nil {
		return nil, err
	}
	return engine.NewLayout(t, shape, group, a.Spec(len(shape), factors))
}

// layout returns the layout of a value or of a variable.
func (v *deviceValue) layout() (*engine.Layout, error) {
	l, err := v.strategy.layout(v.dtype, v.shape, v.annotation, v.perReplica)
	if err != nil || !v.replicaShard.IsSharded() {
		return l, err
	}
	return l.SplitOverGroups(v.replicaShard.Dim, v.strategy.replicas), nil
}
