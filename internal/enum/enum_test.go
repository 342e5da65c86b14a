package enum_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

type Rule int

func TestName(t *testing.T) {
	for v, want := range map[Rule]string{-1: "Rule(-1)", 0: "Rule(0)", 1: "first", 2: "second", 3: "Rule(3)"} {
		assert.Equal(t, want, enum.Name(v, "", "first", "second"))
	}
}
