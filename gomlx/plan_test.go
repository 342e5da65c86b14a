package gomlx_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func TestAnUnchangedProgramFollowsAPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t,
		os.WriteFile(file, []byte(`{"version": 1, "slice": "v5e:2x2", "replicas": 2, "axes": "model=2", "rules": [
		{"variable": "/ff1/dense/weights$", "split": "-,model"}, {"variable": "", "state": "optimizer", "optional": true}]}`),
			0o600))
	args := []string{"-layers", "1", "-width", "16", "-steps", "1"}
	want, stderr, code := run(t, "", args...)
	require.Zero(t, code, stderr)
	got, stderr, code := run(t, ":plan="+file+",explain=1", args...)
	require.Zero(t, code, stderr)
	assert.Equal(t, want, got)
	assert.Contains(t, stderr, `program "Trainer#1" on replica=2,model=2`)
	assert.Regexp(t, `ff1/dense/weights.*-,model`, stderr)

	for config, why := range map[string]string{
		":devices=8,plan=" + file:                 "it is for the 4 devices of v5e:2x2, and there are 8",
		":plan=" + file + "x":                     "no such file",
		":plan=" + file + ",logical=2":            "leave rules, logical and axes out",
		":topology=cpu:4,plan=" + file:            "times are predicted for TPUs only",
		":plan=":                                  "it is empty",
		":topology=v5e:2x2,report=r,plan=" + file: "a report is of one",
	} {
		_, stderr, code = run(t, config, args...)
		assert.Equal(t, 1, code, config)
		assert.Contains(t, stderr, why, config)
	}
}

// The plan of a program without annotations is at least as fast as any with megatron's rules.
func TestAOTLargeUnchangedProgramIsPlanned(t *testing.T) {
	plugintest.Large(t)
	t.Setenv("TPUSTRATEGY_TPU_PLUGIN", plugintest.Libtpu(t))
	t.Setenv("TPUSTRATEGY_CPU_PLUGIN", plugintest.Path(t, "cpu"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "plan.json")
	args := []string{"-vocabulary", "512", "-width", "512", "-layers", "2", "-batch", "32", "-length", "128", "-steps",
		"1"}
	stdout, stderr, code := run(t, ":topology=v5e:2x2,plan="+file, args...)
	require.Zero(t, code, stderr)
	t.Log(stdout)
	assert.Contains(t, stdout, "is planned for v5e:2x2 and not run")
	assert.Regexp(t, `rules=(megatron|searched)`, stdout)
	p, err := plan.Read(file)
	require.NoError(t, err)
	assert.Equal(t, 4, p.Replicas*p.Logical())
	of := func(line string) string { return line[strings.Index(line, "v5e:2x2: "):] }
	lines := regexp.MustCompile(`(?m)^ .* v5e:2x2: .*$`).FindAllString(stdout, -1)
	require.NotEmpty(t, lines)
	assert.Equal(t, p.String(), of(lines[0]), "the plans are in their order, megatron's among them")
	_, stderr, code = run(t, ":plan="+file, args...)
	assert.Zero(t, code, stderr)
}
