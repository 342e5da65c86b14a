package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommandLinesAreReadAsPeopleWriteThem(t *testing.T) {
	for line, want := range map[string]string{
		"":                                     "",
		"help":                                 "--help",
		"help assign":                          "assign --help",
		"assign help":                          "assign help",
		"topology -json v5e:4x4":               "topology --json v5e:4x4",
		"assign v4-8 --replicas -1":            "assign v4-8 --replicas=-1",
		"assign v4-8 --shape -1,1":             "assign v4-8 --shape=-1,1",
		"assign v4-8 --replicas=2 -1":          "assign v4-8 --replicas=2 -1",
		"visualize -,a --shape 4,4 --mesh a=2": "visualize --shape 4,4 --mesh a=2 -- -,a",
		"visualize --shape 4,4 --mesh a=2 -- -,a":  "visualize --shape 4,4 --mesh a=2 -- -,a",
		"visualize -- -json":                       "visualize -- -json",
		"visualize - --shape 4 --mesh a=2":         "visualize - --shape 4 --mesh a=2",
		"report r.json -o -":                       "report r.json -o -",
		"compile --example digits --topology x -h": "compile --example digits --topology x -h",
	} {
		assert.Equal(t, strings.Fields(want), append([]string{}, plainArgs(strings.Fields(line))...), line)
	}
}

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
		assert.Equal(t, 0, a.run(t.Context(), strings.Fields(strings.ReplaceAll(args, `"`, ""))), "%s: %s", args, errs.String())
		assert.NotEmpty(t, out.String(), args)
	}
	require.Positive(t, examples)
}
