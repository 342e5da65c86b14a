package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestAnAnswerIsAskedForOnce(t *testing.T) {
	c := &Compiler{CacheDir: filepath.Join(t.TempDir(), "kept")}
	asked := 0
	get := func(text, sort string) cacheEntry {
		p := Program{Slice: &system.Slice{}, Program: pjrt.Program{Code: []byte(text)}}
		a, err := c.loadOrCompile(p, sort, func() (cacheEntry, error) {
			asked++
			return cacheEntry{Program: pjrt.Program{Code: []byte("of " + text + sort), Format: pjrt.FormatHLO}}, nil
		})
		require.NoError(t, err)
		return a
	}
	for range 2 {
		assert.Equal(t, "of aprobe", string(get("a", "probe").Program.Code))
		assert.Equal(t, "of acompile", string(get("a", "compile").Program.Code))
		assert.Equal(t, "of bprobe", string(get("b", "probe").Program.Code))
	}
	assert.Equal(t, 3, asked)
	kept, err := os.ReadDir(c.CacheDir)
	require.NoError(t, err)
	require.Len(t, kept, 3)
	for _, one := range kept {
		path := filepath.Join(c.CacheDir, one.Name())
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o600))
	}
	assert.Equal(t, "of aprobe", string(get("a", "probe").Program.Code))
	assert.Equal(t, 4, asked, "what is damaged is asked for anew")

	_, err = c.loadOrCompile(Program{Slice: &system.Slice{}}, "probe", func() (cacheEntry, error) {
		return cacheEntry{},
			errors.New("no compiler")
	})
	require.ErrorContains(t, err, "no compiler")
	c.CacheDir = filepath.Join(c.CacheDir, kept[0].Name(), "below a file")
	_ = get("a", "probe")
	assert.Equal(t, 5, asked, "without a folder all is asked for")
}

func TestAStepIsSketchedBeforeItIsProbed(t *testing.T) {
	s := &Step{Compiler: &Compiler{}, Build: func(context.Context, plan.Plan) (BuiltStep, error) { panic("no model") }}
	p := plan.Plan{Slice: "v5e:1x1", Replicas: 1, Axes: []sharding.Axis{{Name: "logical", Size: 1}}}
	_, err := s.Probe(t.Context(), p)
	assert.Equal(t, errkind.FailedPreconditionError, errkind.KindOf(err))
	_, err = s.Sketch(t.Context(), p)
	assert.ErrorContains(t, err, "panic: no model")
}
