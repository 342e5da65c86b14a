package corpus_test

import (
	"bytes"
	"fmt"
	"time"
)

// table is the results, a program a line.
func table(results []result) []byte {
	type row struct{ cpu, tpu *result }
	var names []string
	byName := map[string]*row{}
	for i, r := range results {
		at, ok := byName[r.Name]
		if !ok {
			at = &row{}
			byName[r.Name] = at
			names = append(names, r.Name)
		}
		if r.Platform == "tpu" {
			at.tpu = &results[i]
		} else {
			at.cpu = &results[i]
		}
	}
	seconds := func(r *result, of func(*result) time.Duration) string {
		if r == nil {
			return "failed"
		}
		return fmt.Sprintf("%.2f", of(r).Seconds())
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "| program | mesh | variables, million elements | text, kB | to lower, s | CPU compiler, s | libtpu, s |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|")
	for _, name := range names {
		at := byName[name]
		any := at.cpu
		if any == nil {
			any = at.tpu
		}
		compiling := func(r *result) time.Duration { return r.Compiling }
		fmt.Fprintf(&b, "| %s | %s | %.1f | %d | %s | %s | %s |\n", name, any.Mesh, float64(any.Parameters)/1e6, any.Bytes/1000,
			seconds(any, func(r *result) time.Duration { return r.Lowering }), seconds(at.cpu, compiling), seconds(at.tpu, compiling))
	}
	return b.Bytes()
}
