package pretrained_test

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestLargeWeightsAreTurnedInPlace loads a matrix of 512 x 768, which is large enough to be read
// directly into its final buffers. All parts are read together, each byte once.
func TestLargeWeightsAreTurnedInPlace(t *testing.T) {
	const rows, columns = 512, 768
	header := []byte(`{"x":{"dtype":"F32","shape":[512,768],"data_offsets":[0,1572864]}}      `)
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for i := range rows * columns {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	rules := weights.Rules{{Tensor: "x",
		To: []weights.Target{{Variable: "/x", Steps: []weights.Step{{Transpose: []int{1, 0}}}}}}}
	ctx := context.Background()
	for _, mesh := range [][2]int{{1, 1}, {4, 2}, {2, 4}} {
		for cut := range 2 {
			parts := []int{1, 1}
			parts[cut] = mesh[1]
			s := strategytest.On(t, plugintest.System(t, 8), strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
				Variables: logical.Rules{logical.Match("/x", logical.SplitInto(parts...)), logical.MatchState("",
					logical.ShardParameters)}})
			store := model.NewStore()
			step := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
				rc.Scope().VariableWithShape("x", shapes.Make(dtypes.Float32, columns, rows)).NodeValue(rc.Graph())
				return nil
			}, strategy.FunctionOptions{Store: store})
			_, err := step.Compiled(ctx)
			require.NoError(t, err)
			f, err := weights.Open(path)
			require.NoError(t, err)
			report, err := pretrained.Load(ctx, s, store, f, rules, pretrained.Options{})
			require.NoError(t, err)
			require.NoError(t, f.Close())
			assert.Zero(t, report.StagedBytes, "%v", mesh)
			assert.Equal(t, int64(4*rows*columns), report.BytesRead, "%v", mesh)
			v, ok := s.Variables(store).Lookup("/x")
			require.True(t, ok)
			got, err := v.Value(ctx)
			require.NoError(t, err)
			for i, x := range strategytest.Numbers(t, got) {
				require.Equal(t, float64(i%rows*columns+i/rows), x, "%v", mesh)
			}
		}
	}
}
