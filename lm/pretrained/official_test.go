package pretrained_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// TestTheOfficialPackageMakesAndReadsTheFiles regenerates testdata and compares it, and computes
// the logits of files that this module wrote with the official package. Run it with make
// test-python. TPUSTRATEGY_PYTHON selects another interpreter.
func TestTheOfficialPackageMakesAndReadsTheFiles(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") != "1" {
		t.Skip("TPUSTRATEGY_PYTHON_TESTS=1 runs this test")
	}
	python := os.Getenv("TPUSTRATEGY_PYTHON")
	if python == "" {
		python = "python3"
	}
	ctx := context.Background()
	dir := t.TempDir()
	out, err := exec.Command(python, "testdata/make.py", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"llama", "gemma"} {
		made, err := os.ReadDir(filepath.Join(dir, name))
		require.NoError(t, err)
		for _, file := range made {
			if file.Name() == "expected.json" {
				continue // rounding may differ by machine
			}
			got, err := os.ReadFile(filepath.Join(dir, name, file.Name()))
			require.NoError(t, err)
			want, err := os.ReadFile(filepath.Join("testdata", name, file.Name()))
			require.NoError(t, err)
			assert.Equal(t, want, got, file.Name())
		}
		config, want := read(t, "testdata/"+name)
		_, again := read(t, filepath.Join(dir, name))
		assert.Less(t, far(want.Logits, flat(again.Logits)), 1e-5)

		// Loaded variables are written again, to other files.
		written := filepath.Join(dir, name+" written")
		f, err := weights.Open("testdata/" + name)
		require.NoError(t, err)
		defer f.Close()
		d := decoder{Config: config, loop: true}
		p, err := weights.NewPlan(f.Tensors(), nil, d.rules(), weights.PlanOptions{Create: dtypes.Float32})
		require.NoError(t, err)
		require.NoError(t, p.Write(ctx, written, config.Tensors("F32"), func(ctx context.Context, v weights.Variable) ([]byte,
			error) {
			n := 4
			for _, d := range v.Shape {
				n *= d
			}
			data := make([]byte, n)
			return data, p.Read(ctx, f, v.Path, make([]int, len(v.Shape)), v.Shape, data)
		}, weights.WriteOptions{MaxFileBytes: 50_000}))
		text, err := os.ReadFile("testdata/" + name + "/config.json")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(written, "config.json"), text, 0o644))
		out, err := exec.Command(python, "testdata/make.py", "-read", written).Output()
		require.NoError(t, err)
		var logits [][][]float32
		require.NoError(t, json.Unmarshal(out, &logits))
		assert.Less(t, far(want.Logits, flat(logits)), 1e-5)
	}
}

// flat returns all numbers in order.
func flat(logits [][][]float32) (all []float64) {
	for _, row := range logits {
		for _, place := range row {
			for _, x := range place {
				all = append(all, float64(x))
			}
		}
	}
	return all
}
