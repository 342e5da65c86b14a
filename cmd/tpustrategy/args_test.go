package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		assert.Equal(t, strings.Fields(want), append([]string{}, normalizeArgs(strings.Fields(line))...), line)
	}
}
