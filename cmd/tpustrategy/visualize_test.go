package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheExamplesOfVisualizeDraw(t *testing.T) {
	examples := 0
	for line := range strings.Lines(visualizeCmd{}.Help()) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "tpustrategy ")
		if !ok {
			continue
		}
		examples++
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs, stdin: strings.NewReader(""), getenv: func(string) string { return "" }}
		assert.Equal(t, 0, a.run(t.Context(), strings.Fields(strings.ReplaceAll(args, `"`, ""))), "%s: %s", args,
			errs.String())
		assert.NotEmpty(t, out.String(), args)
	}
	require.Positive(t, examples)
}
