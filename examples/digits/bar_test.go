package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
)

func TestABarFitsItsTerminal(t *testing.T) {
	for _, c := range []struct {
		width int
		long  bool
	}{{narrow, false}, {wide - 1, false}, {wide, true}} {
		var drawn bytes.Buffer
		b := &bar{w: &drawn, terminal: true, width: c.width}
		b.update(job.Progress{Step: 5, Steps: 10, Loss: 0.25, ExamplesPerSecond: 1234})
		b.end()
		assert.Contains(t, drawn.String(), "loss 0.2500", c.width)
		assert.Equal(t, c.long, strings.Contains(drawn.String(), "examples/s"), c.width)
	}
	assert.False(t, newBar(&bytes.Buffer{}).terminal)
}
