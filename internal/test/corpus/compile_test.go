package corpus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/corpus"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// devices is the number of devices in each mesh of the corpus.
const devices = 8

// options returns the options of a strategy for a program on an entry's mesh.
func options(e corpus.Entry, p corpus.Program) strategy.Options {
	return strategy.Options{Replicas: e.Replicas, LogicalDevices: e.Logical, Variables: p.Rules(e.Logical)}
}

func resultOf(e corpus.Entry, platform string, m *spmd.Module, store *model.Store) result {
	r := result{Name: e.Name, Platform: platform, Slice: e.Slice, Mesh: fmt.Sprintf("%dx%d", e.Replicas, e.Logical),
		Bytes: len(m.Text)}
	for v := range store.IterVariables() {
		if v.Trainable {
			r.Parameters += v.Shape().Size()
		}
	}
	return r
}

// compiled compiles the program of an entry and returns its sizes and times. If the compilation
// fails, it ends the test.
func compiled(t *testing.T, s *strategy.TPUStrategy, platform string, e corpus.Entry, p corpus.Program) result {
	t.Helper()
	store := model.NewStore()
	c, err := p.Compiled(t.Context(), s, store, e.Name)
	if err != nil {
		if m, lowering := p.Lowered(t.Context(), s, model.NewStore(), e.Name); lowering == nil {
			err = refused(err, m.Text)
		}
		t.Fatalf("%s is refused: %v", e.Name, err)
	}
	r := resultOf(e, platform, c.Module, store)
	r.Lowering, r.Compiling = c.Lowering, c.Compiling
	return r
}

func TestEveryProgramIsLowered(t *testing.T) {
	sys := plugintest.System(t, devices)
	entries := corpus.All()
	require.GreaterOrEqual(t, len(entries), 40)
	for _, e := range entries {
		t.Run(e.Name, func(t *testing.T) {
			p := e.Real()
			s := strategytest.On(t, sys, options(e, p))
			start := time.Now()
			store := model.NewStore()
			m, err := p.Lowered(t.Context(), s, store, e.Name)
			require.NoError(t, err)
			r := resultOf(e, "text", m, store)
			r.Lowering = time.Since(start)
			t.Logf("%+v", r)
		})
	}
}

func TestQuickProgramsCompileAtTheirRealSize(t *testing.T) {
	if !plugintest.InChild(t) {
		// libtpu runs in a separate process.
		out, err := plugintest.Child(t, append(plugintest.TPUEnv(), "TPU_LOG_DIR=disabled")...)
		require.NoError(t, err, out)
		t.Log(out)
		return
	}
	sys := plugintest.System(t, devices)
	quick := 0
	for _, e := range corpus.All() {
		if !e.Quick {
			continue
		}
		quick++
		t.Run(e.Name, func(t *testing.T) {
			p := e.Real()
			t.Logf("%+v", compiled(t, strategytest.On(t, sys, options(e, p)), "cpu", e, p))
		})
	}
	require.GreaterOrEqual(t, quick, 20)
}
