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

	"tpustrategy/internal/corpus"
	"tpustrategy/internal/plugintest"
	"tpustrategy/strategy"
)

// result is what came of compiling a program.
type result struct {
	Name, Platform, Mesh, Slice string
	Parameters, Bytes           int
	Lowering, Compiling         time.Duration
	// Processor is the processor time of the process that did both.
	Processor time.Duration
	// Failure is why it was not compiled; empty if it was.
	Failure string
}

// mark is before a child's result.
const mark = "CORPUS "

// TestCorpus compiles all programs with both compilers, each in a process of its own,
// those of the shortest text first, and writes a table of them to the file that
// TPUSTRATEGY_CORPUS names, anew after each. One that does not end within
// TPUSTRATEGY_CORPUS_LIMIT, 15 minutes without it, is in the table as that.
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
		sys := openCPU(t)
		for _, e := range entries {
			p, store := e.Real(), model.NewStore()
			m, err := p.Lowered(t.Context(), over(t, sys, e.Replicas, e.Logical, p), store, e.Name)
			require.NoError(t, err, e.Name)
			texts[e.Name] = resultOf(e, "", m, store)
		}
		slices.SortStableFunc(entries, func(a, b corpus.Entry) int { return texts[a.Name].Bytes - texts[b.Name].Bytes })
	}
	var results []result
	for _, e := range entries {
		for _, platform := range []string{"tpu", "cpu"} {
			t.Run(e.Name+"/"+platform, func(t *testing.T) {
				if plugintest.InChild(t) {
					p := e.Real()
					s := (*strategy.TPUStrategy)(nil)
					if platform == "tpu" {
						s = ahead(t, e, p)
					} else {
						s = over(t, openCPU(t), e.Replicas, e.Logical, p)
					}
					line, err := json.Marshal(compiled(t, s, platform, e, p))
					require.NoError(t, err)
					fmt.Printf("%s%s\n", mark, line)
					return
				}
				r := texts[e.Name]
				r.Platform = platform
				r, out := within(t, limit, r)
				results = append(results, r)
				require.NoError(t, os.WriteFile(path, table(results), 0o644))
				if out != "" {
					t.Errorf("%s: %s", r.Failure, out)
				}
			})
		}
	}
}

// within has a child compile a program, and adds to its result. The text is the child's
// if it failed, but for one that did not end.
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
