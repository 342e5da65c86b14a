package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/child"
)

func TestFailuresOfAllKindsHaveTheirExitCode(t *testing.T) {
	for i, sort := range []string{"failed", "usage", "missing", "memory", "died", "findings"} {
		assert.Equal(t, i+1, (&failure{Category: sort}).Code(), sort)
	}
	f := classify(&childError{Doing: "compiling", Err: &child.Error{State: "signal: killed", OutputTail: "the end"}})
	assert.Equal(t, &failure{Category: "died", Message: "compiling: the process died: signal: killed (killed by " +
		"another process or by the kernel, which happens when memory runs out)", Log: "the end"}, f)
	assert.Same(t, f, classify(f), "a failure from a child stays as it is")
}
