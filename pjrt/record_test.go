package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestRecordHasPropertiesOfExecutable(t *testing.T) {
	c := plugintest.CPU(t, 2)
	x := compile(t, c, addOne(2), spmd(2))
	defer x.Close()
	r, err := x.Executable().Record()
	require.NoError(t, err)
	copied := r.Executable()
	for name, ask := range map[string]func(e *pjrt.Executable) (any, error){
		"name":        func(e *pjrt.Executable) (any, error) { return e.Name() },
		"fingerprint": func(e *pjrt.Executable) (any, error) { return e.Fingerprint() },
		"partitions":  func(e *pjrt.Executable) (any, error) { _, n, _, err := e.Counts(); return n, err },
		"types":       func(e *pjrt.Executable) (any, error) { return e.OutputDTypes() },
		"dimensions":  func(e *pjrt.Executable) (any, error) { return e.OutputDims() },
		"memory":      func(e *pjrt.Executable) (any, error) { return e.MemoryStats() },
		"parameters":  func(e *pjrt.Executable) (any, error) { return e.ParameterMemoryKinds() },
	} {
		want, wantErr := ask(x.Executable())
		have, haveErr := ask(copied)
		assert.Equal(t, want, have, name)
		assert.Equal(t, wantErr, haveErr, name)
	}
	require.NoError(t, copied.Close())
	again, err := copied.Record()
	require.NoError(t, err)
	assert.Equal(t, r, again)

	require.NoError(t, x.Close())
	_, err = x.Executable().Record()
	require.ErrorIs(t, err, pjrt.ErrClosed)
}
