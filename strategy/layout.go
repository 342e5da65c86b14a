package strategy

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
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

// layoutOver is the layout of a tensor that may be in parts over the replicas.
func (s *TPUStrategy) layoutOver(dtype dtypes.DType, shape []int, a logical.Annotation, perReplica bool, over spmd.Over) (*mesh.Layout, error) {
	l, err := s.layout(dtype, shape, a, perReplica)
	if err != nil || !over.Is() {
		return l, err
	}
	return l.CutOver(over.Dim, s.replicas), nil
}

// layoutOf is how a value or a variable lies on the devices.
func (s *TPUStrategy) layoutOf(v *distributed) (*mesh.Layout, error) {
	return s.layoutOver(v.dtype, v.shape, v.annotation, v.perReplica, v.over)
}
