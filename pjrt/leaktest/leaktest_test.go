package leaktest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// recorder is a TB that stores errors.
type recorder struct {
	cleanup func()
	errors  []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanup = f }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func buffer(t *testing.T, c *pjrt.Client) *pjrt.Buffer {
	t.Helper()
	b, err := c.BufferFromHost(t.Context(), make([]byte, 4), pjrt.F32, nil, c.Devices()[0])
	require.NoError(t, err)
	return b
}

func TestCheckReportsOpenObjects(t *testing.T) {
	c := plugintest.CPU(t, 1)
	var r recorder
	leaktest.Check(&r)
	left := buffer(t, c)
	r.cleanup()
	require.Len(t, r.errors, 1)
	assert.Contains(t, r.errors[0], "1 buffer objects are still open")
	assert.Contains(t, r.errors[0], "leaktest_test.go", "the creation stack")
	require.NoError(t, left.Close())
}

func TestCheckReportsCollectedObjects(t *testing.T) {
	c := plugintest.CPU(t, 1)
	var r recorder
	leaktest.Check(&r)
	buffer(t, c)
	for open := leaktest.OpenObjects(); leaktest.OpenObjects()["buffer"] == open["buffer"]; time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	r.cleanup()
	require.Len(t, r.errors, 1)
	assert.True(t, strings.Contains(r.errors[0], "released by the garbage collector") &&
		strings.Contains(r.errors[0], "leaktest_test.go"), r.errors[0])
}

func TestCheckPassesIfAllIsClosed(t *testing.T) {
	c := plugintest.CPU(t, 1)
	var r recorder
	leaktest.Check(&r)
	require.NoError(t, buffer(t, c).Close())
	r.cleanup()
	assert.Empty(t, r.errors)
}
