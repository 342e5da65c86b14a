package corpus_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// table returns the results as a Markdown table with one row per program.
func table(results []result) []byte {
	var names []string
	byName := map[string]map[string]result{}
	for _, r := range results {
		if byName[r.Name] == nil {
			byName[r.Name] = map[string]result{}
			names = append(names, r.Name)
		}
		byName[r.Name][r.Platform] = r
	}
	var b bytes.Buffer
	fmt.Fprintln(&b,
		"| program | variables, million elements | mesh | text, kB | to lower, s | CPU plugin, s | slice | libtpu, s |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|")
	for _, name := range names {
		cpu, tpu := byName[name]["cpu"], byName[name]["tpu"]
		of := tpu
		if of.Name == "" || of.Failure != "" && cpu.Name != "" {
			of = cpu
		}
		fmt.Fprintf(&b, "| %s | %.3g | %s | %d | %.2f | %s | %s | %s |\n", name, float64(of.Parameters)/1e6, of.Mesh,
			of.Bytes/1000,
			of.Lowering.Seconds(), cpu.seconds(), of.Slice, tpu.seconds())
	}
	return b.Bytes()
}

// seconds returns a cell with the compile time and, in parentheses, the processor time. If the
// compilation failed, the cell contains the failure.
func (r result) seconds() string {
	took := func(d time.Duration) string { return fmt.Sprintf("%.*f", 1-min(1, int(d.Seconds())/10), d.Seconds()) }
	switch {
	case r.Name == "":
		return "not yet"
	case r.Failure != "" && r.Processor > 0:
		return fmt.Sprintf("%s (%s)", r.Failure, took(r.Processor))
	case r.Failure != "":
		return r.Failure
	}
	return fmt.Sprintf("%s (%s)", took(r.Compiling), took(r.Processor))
}

func TestTheTableHasWhatWasNotCompiled(t *testing.T) {
	results := []result{
		{Name: "a", Platform: "tpu", Mesh: "2x4", Slice: "v5e:2x4", Parameters: 1500000, Bytes: 2000,
			Lowering: time.Second / 2, Compiling: 3 * time.Second, Processor: 42 * time.Second},
		{Name: "a", Platform: "cpu", Mesh: "2x4", Slice: "v5e:2x4", Parameters: 1500000, Bytes: 2000,
			Processor: 70 * time.Second, Failure: "not ended in 4m0s"},
		{Name: "b", Platform: "tpu", Mesh: "8x1", Slice: "v5e:2x4", Failure: "failed"},
	}
	text := string(table(results))
	require.Contains(t, text, "| a | 1.5 | 2x4 | 2 | 0.50 | not ended in 4m0s (70) | v5e:2x4 | 3.0 (42) |\n")
	require.Contains(t, text, "| b | 0 | 8x1 | 0 | 0.00 | not yet | v5e:2x4 | failed |\n")
}
