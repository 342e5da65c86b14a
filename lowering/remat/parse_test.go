package remat_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
)

func TestParsePolicy(t *testing.T) {
	for name, want := range map[string]remat.Policy{"none": remat.Everything(), "products": remat.Products(),
		"full": remat.Nothing()} {
		got, err := remat.ParsePolicy(name)
		require.NoError(t, err)
		assert.Equal(t, want.String(), got.String(), name)
	}
	_, err := remat.ParsePolicy("Full")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	assert.EqualError(t, err, `remat: parse: no policy "Full"; write "none", "products" or "full"`)
}
