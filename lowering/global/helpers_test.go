package global_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/global"
)

// shape is a number of replicas and of logical devices of each.
type shape struct {
	name     string
	replicas int
	logical  int
}

var shapesOfMesh = []shape{{"1x1", 1, 1}, {"8x1", 8, 1}, {"4x2", 4, 2}, {"2x4", 2, 4}}

// newBackend makes a backend that ends, with all that was made of it, with the test.
func newBackend(t testing.TB, over shape, opts ...global.Options) *global.Backend {
	t.Helper()
	o := append(opts, global.Options{})[0]
	o.Logical = over.logical
	if o.Compiler == nil {
		o.Compiler = plugintest.Programs(t)
	}
	b, err := global.New(plugintest.System(t, over.replicas*over.logical), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
