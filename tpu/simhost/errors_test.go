package simhost_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestErrors(t *testing.T) {
	missing := &simhost.MissingError{Op: "start-up", Here: 1, Missing: []int{0, 2}, Names: []string{"red", "blue"},
		Err: context.DeadlineExceeded}
	assert.EqualError(t, missing, "simhost: start-up: timed out waiting for red, blue: context deadline exceeded")
	assert.ErrorIs(t, missing, context.DeadlineExceeded)
	assert.Equal(t, []int{0, 2}, missing.MissingProcesses())
	assert.Equal(t, errkind.UnavailableError, errkind.KindOf(missing))
	lost := &simhost.LostError{Op: `launch of "step"`, Process: 2, Name: "blue", Launches: 3}
	assert.EqualError(t, lost, `simhost: launch of "step": blue ended after 3 launches`)
	different := &simhost.ProgramError{Launching: []simhost.Launch{
		{Name: "red", Program: "a", Fingerprint: "1"}, {Process: 1, Name: "blue", Program: "b", Fingerprint: "2"},
	}}
	assert.EqualError(t, different,
		`simhost: the processes launch different programs: red launches "a" (1), blue launches "b" (2)`)
	assert.Equal(t, errkind.RuntimeError, errkind.KindOf(different))
}
