package generate_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Every method of a nil Cache either works, as in training, or panics with an error that explains
// it.
func TestMethodsOfANilCache(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	works := map[string]bool{}
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		tokens, x := in[0], in[1]
		var c *generate.Cache
		for name, call := range map[string]func(){
			"Attend": func() { c.Attend(x, x, x) }, "Positions": func() { c.Positions(tokens) },
			"Update": func() { c.Update(x, x) },
			"Layer":  func() { c.Layer(0) }, "SetLayer": func() { c.SetLayer(0, x, x) }, "Slot": func() { c.Slot() },
			"ValidSlots": func() { c.ValidSlots() },
		} {
			_, err := errkind.CatchPanic("method "+name, func() (any, error) { call(); return nil, nil })
			if works[name] = err == nil; err != nil {
				assert.ErrorContains(t, err, "the cache is nil", name)
			}
		}
		return in[:1]
	}, strategy.FunctionOptions{})
	_, err := f.Run(t.Context(), [][]int32{{1, 2}}, [][][][]float32{{{{1}}, {{2}}}})
	require.NoError(t, err)
	methods := reflect.TypeFor[*generate.Cache]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		ok, listed := works[name]
		assert.True(t, listed, "%s is not tested", name)
		assert.Equal(t, strings.Contains(" Attend Positions Update ", " "+name+" "), ok, name)
	}
}
