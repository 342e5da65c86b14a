package hangtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWhatHangsIsTold(t *testing.T) {
	assert.True(t, returns(func() {}, limit))
	release := make(chan struct{})
	defer close(release)
	assert.False(t, returns(func() { <-release }, time.Millisecond))
	ran := false
	Within(t, func() { ran = true })
	assert.True(t, ran)
}
