package number_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
)

func TestANumberIsReadOfEveryRealDType(t *testing.T) {
	for _, x := range []*tensors.Tensor{
		tensors.FromScalar(float64(3)), tensors.FromScalar(float32(3)), tensors.FromScalar(float16.FromFloat32(3)),
		tensors.FromScalar(bfloat16.FromFloat32(3)),
		tensors.FromScalar(int8(3)), tensors.FromScalar(int16(3)), tensors.FromScalar(int32(3)), tensors.FromScalar(int64(3)),
		tensors.FromScalar(uint8(3)), tensors.FromScalar(uint16(3)), tensors.FromScalar(uint32(3)),
		tensors.FromScalar(uint64(3)),
		tensors.FromValue([]float32{3, 4}),
	} {
		got, err := number.ReadScalar(x)
		require.NoError(t, err, "%s", x.Shape())
		assert.Equal(t, 3.0, got, "%s", x.Shape())
	}
	for _, x := range []*tensors.Tensor{tensors.FromScalar(complex64(3)), tensors.FromScalar(true)} {
		_, err := number.ReadScalar(x)
		var own *errkind.Fault
		require.ErrorAs(t, err, &own, "%s", x.Shape())
		assert.Equal(t, errkind.TypeError, errkind.KindOf(err))
		assert.ErrorContains(t, err, x.DType().String()+" is no real number; read the tensor with Value")
	}
	gone := tensors.FromScalar(float32(3))
	require.NoError(t, gone.FinalizeAll())
	_, err := number.ReadScalar(gone)
	assert.ErrorContains(t, err, "strategy: read a number: ")
}
