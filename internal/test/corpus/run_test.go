package corpus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/corpus"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// result describes the compilation of a program.
type result struct {
	Name, Platform, Mesh, Slice string
	Parameters, Bytes           int
	Lowering, Compiling         time.Duration
	// Processor is the processor time of the child process.
	Processor time.Duration
	// Failure is the reason of a failed compilation, or empty.
	Failure string
}

// mark precedes the result in the output of a child process.
const mark = "CORPUS "

// TestCorpus compiles all programs with both compilers, in child processes and in order of the size
// of the program text. After each program it writes a table to the file that TPUSTRATEGY_CORPUS
// names and the results to the same name with the suffix .json. Programs with a result in the JSON
// file and a text of the same size are not compiled again, so that an interrupted run can be
// resumed. TPUSTRATEGY_CORPUS_LIMIT sets the timeout of a program. The default is 15 minutes.
func TestCorpus(t *testing.T) {
	path := os.Getenv("TPUSTRATEGY_CORPUS")
	if path == "" {
		t.Skip("TPUSTRATEGY_CORPUS is not set: make corpus")
	}
	limit := 15 * time.Minute
	if text := os.Getenv("TPUSTRATEGY_CORPUS_LIMIT"); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	child := os.Getenv("TPUSTRATEGY_TEST_CHILD") != ""
	entries, texts := corpus.All(), map[string]result{}
	if !child {
		sys := plugintest.System(t, devices)
		for _, e := range entries {
			p, store := e.Real(), model.NewStore()
			m, err := p.Lowered(t.Context(), strategytest.On(t, sys, options(e, p)), store, e.Name)
			require.NoError(t, err, e.Name)
			texts[e.Name] = resultOf(e, "", m, store)
		}
		slices.SortStableFunc(entries, func(a, b corpus.Entry) int { return texts[a.Name].Bytes - texts[b.Name].Bytes })
	}
	results, before := []result(nil), resultsOf(t, path+".json")
	for _, e := range entries {
		for _, platform := range []string{"tpu", "cpu"} {
			t.Run(e.Name+"/"+platform, func(t *testing.T) {
				if plugintest.InChild(t) {
					p := e.Real()
					s := (*strategy.TPUStrategy)(nil)
					if platform == "tpu" {
						s = strategytest.Ahead(t, e.Slice, options(e, p))
					} else {
						s = strategytest.On(t, plugintest.System(t, devices), options(e, p))
					}
					line, err := json.Marshal(compiled(t, s, platform, e, p))
					require.NoError(t, err)
					fmt.Printf("%s%s\n", mark, line)
					return
				}
				r := texts[e.Name]
				r.Platform = platform
				out := ""
				if i := slices.IndexFunc(before, r.alike); i >= 0 {
					r = before[i]
				} else {
					r, out = within(t, limit, r)
				}
				results = append(results, r)
				keep(t, path, results, before)
				if out != "" {
					t.Errorf("%s: %s", r.Failure, out)
				}
			})
		}
	}
}

// alike reports whether of is a successful compilation of the same program.
func (r result) alike(of result) bool {
	return of.Failure == "" && of.Name == r.Name && of.Platform == r.Platform && of.Mesh == r.Mesh &&
		of.Slice == r.Slice && of.Bytes == r.Bytes
}

func resultsOf(t *testing.T, path string) (results []result) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &results), path)
	return results
}

// keep writes the table and the JSON file. Both include the earlier results of programs that this
// run has not compiled yet.
func keep(t *testing.T, path string, results, before []result) {
	all := slices.Clone(results)
	for _, r := range before {
		if !slices.ContainsFunc(results, func(of result) bool { return of.Name == r.Name && of.Platform == r.Platform }) {
			all = append(all, r)
		}
	}
	data, err := json.MarshalIndent(all, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".json", data, 0o644))
	require.NoError(t, os.WriteFile(path, table(all), 0o644))
}

// within compiles a program in a child process and adds the times to the result. If the child
// fails, within also returns its output. After a timeout it returns no output.
func within(t *testing.T, limit time.Duration, r result) (result, string) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, processor, err := plugintest.ChildWithin(t, ctx, append(plugintest.TPUEnv(), "TPU_LOG_DIR=disabled")...)
	r.Processor = processor
	_, line, ok := strings.Cut(out, mark)
	line, _, _ = strings.Cut(line, "\n")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.Failure = fmt.Sprintf("not ended in %v", limit)
		return r, ""
	case err == nil && ok:
		var of result
		if err = json.Unmarshal([]byte(line), &of); err == nil {
			r.Lowering, r.Compiling = of.Lowering, of.Compiling
			return r, ""
		}
	}
	r.Failure = "failed"
	return r, fmt.Sprintf("%v\n%s", err, out)
}
