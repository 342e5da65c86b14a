package transformer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
)

// TestSizesAreThoseOfTheirNames checks the numbers of parameters. The numbers of Llama 3 are
// published.
func TestSizesAreThoseOfTheirNames(t *testing.T) {
	assert.Equal(t, 1_343_868_928, transformer.Billion().Parameters())
	assert.Equal(t, 8_030_261_248, transformer.Llama8B().Parameters())
	assert.Equal(t, 70_553_706_496, transformer.Llama70B().Parameters())
}
