package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// A component can be read on the devices and on the host, also if it is in another process or its
// shards are in two processes.
func TestAComponentIsReadInEveryProcess(t *testing.T) {
	sys := plugintest.System(t, 4)
	for name, c := range map[string]struct {
		processes, logicalDevices int
		annotation                logical.Annotation
	}{
		"whole":               {processes: 2, logicalDevices: 1},
		"split":               {2, 2, logical.SplitInto(2)},
		"split over two":      {4, 2, logical.SplitInto(2)},
		"one process":         {1, 1, logical.Annotation{}},
		"one process, split":  {1, 2, logical.SplitInto(2)},
		"assigned to the 2nd": {2, 2, logical.AssignTo(1)},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := 4 / c.logicalDevices
			strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: c.processes},
				strategy.Options{LogicalDevices: c.logicalDevices}, func(ctx context.Context, s *strategy.TPUStrategy) error {
					v, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Name: "v", Annotation: c.annotation,
						LocalWrites: true})
					if err != nil {
						return err
					}
					// Component r becomes [1+10r, 2+10r].
					apart := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
						return []*graph.Node{rc.AssignAdd(v,
							graph.MulScalar(graph.BroadcastToDims(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32), 2), 10))}
					}, strategy.FunctionOptions{Name: "apart"})
					if _, err := apart.Run(ctx); err != nil {
						return err
					}
					for r := range replicas {
						want := []float32{1 + 10*float32(r), 2 + 10*float32(r)}
						part, err := eager.Of(s).Component(v, r)
						if err != nil {
							return err
						}
						m, err := s.Mirror(ctx, part, c.annotation)
						if err != nil {
							return err
						}
						for _, own := range s.LocalReplicas() {
							if c.processes == 4 {
								break // this process has half of a replica, which it cannot read alone
							}
							got, err := m.Local(ctx, own)
							if err != nil {
								return err
							}
							assert.Equal(t, want, got.Value(), "component %d on replica %d", r, own)
						}
						if err := m.Close(); err != nil {
							return err
						}
					}
					// In an update the function of each component reads its own component.
					_, err = eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) {
						got, err := v.Value(u.Context())
						if err != nil {
							return nil, err
						}
						r, _ := eager.UpdateReplicaID(u.Context())
						assert.Equal(t, []float32{1 + 10*float32(r), 2 + 10*float32(r)}, got.Value(), "component %d", r)
						return nil, nil
					})
					return err
				}))
		})
	}
}
