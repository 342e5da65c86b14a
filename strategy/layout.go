package strategy

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy/internal/wire"
)

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
