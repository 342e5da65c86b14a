package pretrained_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// large is a model with 235 MB in float32.
var large = decoder{Config: weights.Config{Type: "llama", Layers: 8, Width: 512, Heads: 8, KeyHeads: 8, HeadSize: 64,
	Hidden: 1408, Vocabulary: 32000, Epsilon: 1e-5, RotaryBase: 10000},
	loop: true, compute: dtypes.Float32}

// sparse creates the model's file as a sparse file, whose zeros use no disk space.
func sparse(t testing.TB, c weights.Config, dtype string, path string) (header int64) {
	t.Helper()
	entries, at := map[string]any{}, int64(0)
	for _, x := range c.Tensors(dtype) {
		bytes := int64(4)
		if dtype == "BF16" {
			bytes = 2
		}
		for _, d := range x.Shape {
			bytes *= int64(d)
		}
		entries[x.Name] = map[string]any{"dtype": dtype, "shape": x.Shape, "data_offsets": []int64{at, at + bytes}}
		at += bytes
	}
	text, err := json.Marshal(entries)
	require.NoError(t, err)
	start := make([]byte, 8)
	for i := range start {
		start[i] = byte(len(text) >> (8 * i))
	}
	require.NoError(t, os.WriteFile(path, append(start, text...), 0o644))
	header = int64(8 + len(text))
	require.NoError(t, os.Truncate(path, header+at))
	return header
}

// countedFS counts the bytes that are read from its files.
type countedFS struct {
	fs.FS
	bytes atomic.Int64
}

type countedFile struct {
	fs.File
	of *countedFS
}

func (c *countedFS) Open(name string) (fs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &countedFile{f, c}, nil
}

func (c *countedFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.File.(io.ReaderAt).ReadAt(p, at)
	c.of.bytes.Add(int64(n))
	return n, err
}

// shards is the size of the store's variables on the devices of a process: the memory on all
// devices, and the number of different elements.
func shards(s *strategy.TPUStrategy, store *model.Store) (held, distinct int64) {
	local := s.LocalReplicas()
	for _, v := range s.Variables(store).All() {
		var seen []string
		for _, x := range v.Shards() {
			if !slices.Contains(local, x.Replica) {
				continue
			}
			held += int64(v.BytesPerDevice())
			name := fmt.Sprint(x.Start, x.Size)
			if slices.Contains(seen, name) {
				continue
			}
			seen = append(seen, name)
			n := int64(4)
			for _, d := range x.Size {
				n *= int64(d)
			}
			distinct += n
		}
	}
	return held, distinct
}

// TestAHostReadsItsShardsAndHoldsLittleMore loads 235 MB on simulated hosts, in a separate process.
// The devices use the host's memory here, so the process grows by the shards and by the memory of
// the transfer.
func TestAHostReadsItsShardsAndHoldsLittleMore(t *testing.T) {
	for _, c := range []struct {
		processes, replicas, logicalDevices int
		state                               logical.StateSharding
	}{{4, 4, 2, logical.ShardParameters}, {2, 2, 4, logical.ShardNothing}, {1, 1, 1, logical.ShardNothing}} {
		name := fmt.Sprintf("%d processes %dx%d %s", c.processes, c.replicas, c.logicalDevices, c.state)
		t.Run(name, func(t *testing.T) {
			if !plugintest.InChild(t) {
				plugintest.CPU(t, 1) // or skips
				out, err := plugintest.Child(t)
				require.NoError(t, err, "%s", out)
				for _, line := range strings.Split(out, "\n") {
					if strings.Contains(line, "MB") {
						t.Log(strings.TrimSpace(line))
					}
				}
				return
			}
			path := filepath.Join(t.TempDir(), weights.SingleName)
			header := sparse(t, large.Config, "F32", path)
			sys := plugintest.System(t, c.replicas*c.logicalDevices)
			var total atomic.Int64
			var baseline int64
			strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: c.processes},
				large.options(c.replicas, c.logicalDevices, c.state),
				func(ctx context.Context, s *strategy.TPUStrategy) error {
					store := model.NewStore()
					if _, err := large.function(s, store).Compiled(ctx, shapes.Make(dtypes.Int32, 4, 3)); err != nil {
						return err
					}
					fsys := &countedFS{FS: os.DirFS(filepath.Dir(path))}
					f, err := weights.OpenFS(fsys, weights.SingleName)
					if err != nil {
						return err
					}
					defer f.Close()
					if err := s.Barrier(ctx, "compiled"); err != nil {
						return err
					}
					if s.Process() == 0 {
						debug.FreeOSMemory()
						baseline = resident(t, "VmRSS")
						// From here on the peak is the peak of the load.
						require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
					}
					if err := s.Barrier(ctx, "measured"); err != nil {
						return err
					}
					report, err := pretrained.Load(ctx, s, store, f, large.rules(), pretrained.Options{})
					if err != nil {
						return err
					}
					held, distinct := shards(s, store)
					assert.Equal(t, distinct+header, fsys.bytes.Load(), "what process %d read", s.Process())
					assert.Equal(t, held, int64(report.DeviceBytes), "process %d", s.Process())
					total.Add(held)
					t.Logf("process %d: %v", s.Process(), report)
					return s.Barrier(ctx, "loaded")
				}))
			grown := resident(t, "VmHWM") - baseline
			t.Logf("shards %.1f MB, the process grew by %.1f MB at its peak: %.3f times", float64(total.Load())/1e6,
				float64(grown)/1e6, float64(grown)/float64(total.Load()))
			limit := 1.1
			if plugintest.Instrumented {
				limit = 1.3
			}
			assert.LessOrEqual(t, float64(grown), limit*float64(total.Load()))
		})
	}
}

// resident returns a memory size of this process in bytes, as Linux reports it.
func resident(t testing.TB, field string) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), field+":"); ok {
			var kb int64
			_, err := fmt.Sscan(rest, &kb)
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no " + field)
	return 0
}
