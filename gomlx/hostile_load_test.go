package gomlx_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// resident is the memory of the process in bytes.
func resident(t testing.TB) int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc here")
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

// TestExecutionsLeaveNothing executes a training step, whose variable is donated, and an evaluation
// 10,000 times. The memory of the process does not grow by what the executions hold.
func TestExecutionsLeaveNothing(t *testing.T) {
	b := newBackend(t, shape{"2x1", 2, 1})
	const n = 4 << 10 // 16 KiB each: 10,000 of them would be 160 MB
	x := tensor{flat: make([]float32, n), dims: []int{n}}
	w := tensor{name: "/w", flat: make([]float32, n), dims: []int{n}}
	step := compiledOf(t, b, []tensor{x, w}, func(f compute.Function, v []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.Add(v[0], v[1])), must(t)(f.ReduceSum(v[0]))}
	})
	variable := []compute.Buffer{put(t, b, w)}
	run := func(times int) {
		for i := range times {
			batch := put(t, b, x)
			out, err := step.Execute([]compute.Buffer{batch, variable[0]}, []bool{false, true}, 0)
			require.NoError(t, err)
			variable[0] = out[0]
			if i%100 == 0 {
				require.Equal(t, []float32{0}, flatOf(t, out[1]))
			}
			require.NoError(t, out[1].Finalize())
			require.NoError(t, batch.Finalize())
		}
		_ = flatOf(t, variable[0])
	}
	run(1000)
	runtime.GC()
	before, live := resident(t), b.NumLive()
	run(9000)
	runtime.GC()
	assert.Equal(t, live, b.NumLive())
	assert.Less(t, resident(t)-before, 64<<20, "bytes")
	runtime.KeepAlive(variable)
}

// TestForgottenBuffersAreCollected drops buffers and results without Finalize, from several
// goroutines, while the garbage collector is at work.
func TestForgottenBuffersAreCollected(t *testing.T) {
	b := newBackend(t, grid)
	exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
	live := b.NumLive()
	plugintest.Within(t, 2*time.Minute, func() {
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				for i := range 50 {
					out, err := exe.Execute([]compute.Buffer{put(t, b, eight), put(t, b, weights)}, []bool{i%2 == 0, i%3 == 0}, 0)
					if assert.NoError(t, err) && i%10 == 0 {
						assert.Equal(t, []float32{9, 9, 9, 9, 9, 9, 9, 9}, flatOf(t, out[0]))
					}
					if i%16 == g {
						runtime.GC()
					}
				}
			})
		}
		all.Wait()
	})
	assert.Eventually(t, func() bool {
		runtime.GC()
		return b.NumLive() <= live
	}, 30*time.Second, 20*time.Millisecond, "what nobody has is freed")
	assert.Equal(t, live, b.NumLive())
}

// TestHostileCaches name a directory that cannot be one, or whose files are garbage.
func TestHostileCaches(t *testing.T) {
	plugintest.Path(t, "cpu")
	double := func(f compute.Function, x []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.Add(x[0], x[0]))}
	}
	want := []any{[]float32{2, 4, 6, 8, 10, 12, 14, 16}}
	var notes strings.Builder
	open := func(dir string) *gomlx.Backend {
		b, err := gomlx.NewFromConfig(t.Context(), fmt.Sprintf("devices=2,cache=%q", dir), gomlx.Options{Log: &notes})
		require.NoError(t, err)
		return b
	}
	dir := filepath.Join(t.TempDir(), "a new one")
	for _, how := range []string{"written", "read", "garbage", "cut off", "not there"} {
		b := open(dir)
		assert.Equal(t, want, runOf(t, b, []tensor{eight}, double), how)
		require.NoError(t, b.Close())
		entries := 0
		require.NoError(t, filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			entries++
			switch how {
			case "read":
				return os.WriteFile(name, []byte("garbage"), 0o644)
			case "garbage":
				return os.Truncate(name, 100)
			case "cut off":
				return os.Remove(name)
			}
			return nil
		}))
		assert.NotZero(t, entries, how)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/none", "/dev/full"} {
		b, err := gomlx.NewFromConfig(t.Context(), "devices=2,cache="+dir, gomlx.Options{Log: &notes})
		if err != nil {
			assertFault(t, err, dir)
			continue
		}
		assert.Equal(t, want, runOf(t, b, []tensor{eight}, double), dir)
		require.NoError(t, b.Close())
	}
}

// TestAKilledProcessLeavesNothing kills a process that executes: no file of it stays behind.
func TestAKilledProcessLeavesNothing(t *testing.T) {
	if plugintest.InChild(t) {
		b := newBackend(t, grid)
		exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
		for i := 0; ; i++ {
			_, err := exe.Execute([]compute.Buffer{put(t, b, eight), put(t, b, weights)}, nil, 0)
			require.NoError(t, err)
			if i == 20 {
				self, err := os.FindProcess(os.Getpid())
				require.NoError(t, err)
				require.NoError(t, self.Kill())
			}
		}
	}
	empty := t.TempDir()
	out, err := plugintest.Child(t, "TMPDIR="+empty)
	require.ErrorContains(t, err, "killed", out)
	left, err := os.ReadDir(empty)
	require.NoError(t, err)
	assert.Empty(t, left)
}
