package similar

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	names := []string{"/output/dense/biases", "/hidden/dense/weights", "/output/dense/weights", "/step"}
	assert.Equal(t, []int{1, 2, 0}, Nearest(TrimOperators(`/hiden/dense/weights$`), names, 3))
	assert.Equal(t, []int{3, 0, 1, 2}, Nearest("", names, 9), "the shortest, then in order")
	assert.Empty(t, Nearest("x", nil, 3))
	assert.Equal(t, "/ab", TrimOperators(`^/(a|b)*$`))
	assert.Zero(t, editDistance("dense", "/dense/w"))
	assert.Equal(t, 1, editDistance("dnse", "/dense/w"))
}
