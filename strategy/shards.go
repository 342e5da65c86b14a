package strategy

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Shard describes one device's shard of a value or a variable.
type Shard struct {
	// Replica and LogicalDevice identify the device, and Device is its name. Process is the process
	// that has the device.
	Replica, LogicalDevice int
	Device                 string
	Process                int
	// Start and Size are the first index and the size in each dimension of the replica's tensor.
	Start, Size []int
	Bytes       int // in device memory
}

// String returns the index ranges and the device, such as "[0:4 0:8] on /job:worker/...".
func (s Shard) String() string {
	ranges := make([]string, len(s.Start))
	for i, start := range s.Start {
		ranges[i] = fmt.Sprintf("%d:%d", start, start+s.Size[i])
	}
	return fmt.Sprintf("%v on %s", ranges, s.Device)
}

// shards lists the shards of a value with the given buffers. It queries the sizes of this process's
// shards from the buffers, and computes the sizes of other shards from the layout.
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

func (v *deviceValue) Shards() []Shard {
	buffers, err := v.openBuffers()
	if err != nil {
		return nil
	}
	return v.shards(buffers)
}

// Shards lists the variable's shards by replica, then by logical device. If the variable is not
// split, or is assigned to one logical device, each device has a complete copy. Shards returns nil
// for a closed variable and ahead of time.
func (v *Variable) Shards() []Shard {
	v.strategy.runtime.Launch.Lock()
	defer v.strategy.runtime.Launch.Unlock()
	if v.checkOpen() != nil {
		return nil
	}
	return v.asDeviceValue().shards(v.buffers)
}

// layout returns the layout of a replica's tensor on its logical devices. A per-replica scalar is
// stored as a vector with one element.
func (s *TPUStrategy) layout(dtype dtypes.DType, shape []int, a logical.Annotation,
	perReplica bool) (*engine.Layout, error) {
	t, err := number.PluginDType(dtype)
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

func (v *deviceValue) layout() (*engine.Layout, error) {
	l, err := v.strategy.layout(v.dtype, v.shape, v.annotation, v.perReplica)
	if err != nil || !v.replicaShard.IsSharded() {
		return l, err
	}
	return l.SplitOverGroups(v.replicaShard.Dim, v.strategy.replicas), nil
}
