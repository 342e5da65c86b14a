package corpus_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/corpus"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// traces is the number of traces of a program. Each trace iterates over Go maps in another order.
const traces = 5

// textOf returns the program text for batches of the given shapes.
func textOf(t *testing.T, s *strategy.TPUStrategy, p corpus.Program, store *model.Store, batch ...any) string {
	t.Helper()
	if len(batch) == 0 {
		m, err := p.Lowered(t.Context(), s, store, "step")
		require.NoError(t, err)
		return string(m.Text)
	}
	m, err := p.Step(s, store, "step").Lowered(t.Context(), batch...)
	require.NoError(t, err)
	return string(m.Text)
}

// requireSame compares two texts and reports the first difference.
func requireSame(t *testing.T, want, got, what string) {
	t.Helper()
	if want == got {
		return
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	from := max(at-200, 0)
	t.Errorf("%s: the text differs at byte %d:\n%s\n---\n%s", what, at, want[from:min(at+200, len(want))],
		got[from:min(at+200, len(got))])
}

var _ = shapes.Make

func TestEveryTraceOfAProgramGivesTheSameText(t *testing.T) {
	sys := plugintest.System(t, devices)
	for _, e := range corpus.All() {
		t.Run(e.Name, func(t *testing.T) {
			p := e.Small()
			s := strategytest.On(t, sys, options(e, p))
			want := ""
			for i := range traces {
				store := model.NewStore()
				if i > 0 {
					s = strategytest.On(t, sys, options(e, p))
				}
				got := textOf(t, s, p, store)
				if i == 0 {
					want = got
				}
				requireSame(t, want, got, fmt.Sprintf("trace %d", i))
				requireSame(t, want, textOf(t, s, p, store), fmt.Sprintf("trace %d, of a store with its variables", i))
			}
		})
	}
}
