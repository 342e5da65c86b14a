package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestSyntaxErrorContainsOffset(t *testing.T) {
	_, _, err := sharding.ParseShardy(`<@m, [{"x"}, {"y]>`)
	assert.EqualError(t, err, "sharding: Shardy sharding: missing closing quote at offset 18, near \"\"")
	_, err = sharding.ParseOpSharding("{devices=[2,x]}")
	assert.EqualError(t, err, "sharding: HLO sharding: expected a number at offset 12, near \"x]}\"")
}
