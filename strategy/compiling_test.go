package strategy_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
)

var errEnough = errors.New("enough")

// slow is a compiler that waits and then returns an error.
type slow time.Duration

func (s slow) Compile(context.Context, *pjrt.Client, pjrt.Program, pjrt.CompileOptions) (*pjrt.LoadedExecutable,
	error) {
	time.Sleep(time.Duration(s))
	return nil, errEnough
}

func compileSlowly(t *testing.T, s *strategy.TPUStrategy) {
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{Name: "identity"})
	_, err := f.Compiled(context.Background(), shapes.Make(dtypes.Float32, 4))
	require.ErrorIs(t, err, errEnough)
}

func TestALongCompilationShowsThatItGoesOn(t *testing.T) {
	sys := plugintest.System(t, 4)
	synctest.Test(t, func(t *testing.T) {
		var said []strategy.Compilation
		s, err := strategy.New(sys, strategy.Options{LogicalDevices: 2, Compiler: slow(100 * time.Second),
			Compiling: func(c strategy.Compilation) { said = append(said, c) }})
		require.NoError(t, err)
		compileSlowly(t, s)
		require.Len(t, said, 3)
		for i, passed := range []time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second} {
			assert.Equal(t, passed, said[i].Elapsed)
			assert.Equal(t, "identity", said[i].Name)
			assert.Positive(t, said[i].TextBytes)
			assert.Equal(t, []int{2, 2}, []int{said[i].Replicas, said[i].LogicalDevices})
		}
		assert.Regexp(t, `^compiling identity for 2 x 2 devices: running for 1m10s, 0\.\d kB of program$|^compiling `+
			`identity for 2 x 2 devices: running for 1m10s, 1\.\d kB of program$`, said[2].String())
		require.NoError(t, s.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, err := strategy.New(sys, strategy.Options{LogicalDevices: 2, Compiler: slow(15 * time.Second),
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		compileSlowly(t, s)
		assert.Contains(t, log.String(), `msg="strategy: a compilation is still running" step=identity elapsed=10s text_bytes=`)
		require.NoError(t, s.Close())
	})
}
