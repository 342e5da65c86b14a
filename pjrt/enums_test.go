package pjrt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestNumbersAreTheOfficialOnes(t *testing.T) {
	for name, path := range plugintest.Headers(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			var c strings.Builder
			fmt.Fprintf(&c, "#include %q\n", path)
			count := 0
			equal := func(constant string, value int) {
				if regexp.MustCompile(`\b` + constant + `\b`).Match(text) { // not in older headers
					fmt.Fprintf(&c, "_Static_assert(%s == %d, \"%s\");\n", constant, value, constant)
					count++
				}
			}
			for i, n := range pjrt.DTypeNames() {
				equal("PJRT_Buffer_Type_"+n, i)
			}
			for i, n := range pjrt.CodeNames() {
				equal("PJRT_Error_Code_"+n, i)
				assert.Equal(t, "PJRT_Error_Code_"+n, pjrt.Code(i).String())
			}
			for i, n := range pjrt.ExtensionNames() {
				equal("PJRT_Extension_Type_"+n, i)
			}
			for i, n := range []string{"kString", "kInt64", "kInt64List", "kFloat", "kBool"} {
				equal("PJRT_NamedValue_"+n, i)
			}
			equal("PJRT_HostBufferSemantics_kImmutableOnlyDuringCall", 0)
			equal("PJRT_HostBufferSemantics_kImmutableZeroCopy", 2)
			equal("PJRT_Buffer_MemoryLayout_Type_Tiled", 0)
			require.Greater(t, count, 65)
			plugintest.CompileC(t, c.String(), filepath.Dir(path))
		})
	}
}

func TestDTypes(t *testing.T) {
	assert.Equal(t, "F32", pjrt.F32.String())
	assert.Equal(t, "DType(99)", pjrt.DType(99).String())
	assert.Equal(t, "DType(-1)", pjrt.DType(-1).String())
	for dtype, bits := range map[pjrt.DType]int{pjrt.Pred: 8, pjrt.S4: 4, pjrt.U2: 2, pjrt.U1: 1, pjrt.BF16: 16, pjrt.C128: 128, pjrt.F4E2M1FN: 4, pjrt.Token: 0, pjrt.Invalid: 0, 99: 0, -1: 0} {
		assert.Equal(t, bits, dtype.Bits(), "%v", dtype)
		assert.Equal(t, (bits+7)/8, dtype.HostBytes(), "%v", dtype)
	}
	assert.Equal(t, []byte{1, 0, 2, 0}, pjrt.Bytes([]uint16{1, 2}))
	assert.Empty(t, pjrt.Bytes([]float64(nil)))
	s := []int32{0}
	pjrt.Bytes(s)[0] = 5
	assert.EqualValues(t, 5, s[0], "a view, not a copy")
}

func TestErrorsMatchAtAnyDepth(t *testing.T) {
	err := fmt.Errorf("outer: %w", &pjrt.Error{Op: "compile", Code: pjrt.ResourceExhausted, Plugin: "/x/libtpu.so", Msg: "no room"})
	require.ErrorIs(t, err, pjrt.ResourceExhausted)
	assert.NotErrorIs(t, err, pjrt.Internal)
	assert.NotErrorIs(t, err, errors.ErrUnsupported)
	assert.Equal(t, "outer: pjrt: compile: RESOURCE_EXHAUSTED: no room (libtpu.so)", err.Error())
	require.ErrorIs(t, &pjrt.Error{Code: pjrt.Unimplemented}, errors.ErrUnsupported)
	require.ErrorIs(t, pjrt.Unimplemented, errors.ErrUnsupported)
	assert.Equal(t, "CODE_77", pjrt.Code(77).Error())
	assert.Equal(t, "PJRT_Error_Code_CODE_-1", pjrt.Code(-1).String())
	require.ErrorIs(t, &pjrt.ArgumentError{Err: pjrt.ErrDonated}, pjrt.ErrDonated)
	assert.Equal(t, "pjrt: execute: result 2 of device 1: it is live: busy", (&pjrt.ArgumentError{Result: true, Device: 1, Index: 2, Reason: "it is live", Err: errors.New("busy")}).Error())
	assert.Equal(t, "pjrt: execute: arguments: x", (&pjrt.ArgumentError{Device: -1, Index: -1, Reason: "x"}).Error())
	assert.Equal(t, "pjrt: close client: still open: 2 buffers, 1 calls", (&pjrt.OpenError{Op: "close client", Buffers: 2, Calls: 1}).Error())
}

func TestACompilersLongMessageIsKeptWholeAndSummedUp(t *testing.T) {
	c := cpu(t, 1)
	_, err := c.Compile(background, function("%x: tensor<4xf32>", "tensor<5xf32>", "return %x : tensor<4xf32>"), pjrt.CompileOptions{})
	var pe *pjrt.Error
	require.ErrorAs(t, err, &pe)
	assert.NotContains(t, pe.Msg, "\n")
	if pe.Log != "" {
		assert.True(t, strings.HasPrefix(strings.TrimSpace(pe.Log), pe.Msg[:20]))
	}
}
