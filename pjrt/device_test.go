package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func TestMemoryProperties(t *testing.T) {
	c := plugintest.CPU(t, 2)
	seen := map[int]bool{}
	for _, m := range c.Memories() {
		assert.NotEmpty(t, m.Kind())
		assert.NotEmpty(t, m.String())
		assert.NotEmpty(t, m.DebugString())
		assert.NotEmpty(t, m.Devices())
		assert.False(t, seen[m.ID()], "ids are unique")
		seen[m.ID()] = true
		assert.Equal(t, m.Kind() == "device", m.KindID() == c.Devices()[0].DefaultMemory().KindID())
	}
	assert.Len(t, seen, len(c.Devices())*len(c.Devices()[0].Memories()))
}
