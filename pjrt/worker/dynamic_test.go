package worker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// Executing a program whose main function has a dynamic shape would abort this process. It is an error as
// text, as bytecode, and with the same reason as a portable artifact (VHLO). The plugin does not read the
// bytecode of StableHLO of other versions.
func TestDynamicShapesReturnErrors(t *testing.T) {
	ctx := context.Background()
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{Timeout: 60 * time.Second})
	texts, err := filepath.Glob("testdata/dynamic/*.mlir")
	require.NoError(t, err)
	require.Len(t, texts, 8)
	for _, text := range texts {
		errorOfText := ""
		for _, suffix := range []string{".mlir", ".mlirbc", ".vhlo"} {
			path := strings.TrimSuffix(text, ".mlir") + suffix
			t.Run(filepath.Base(path), func(t *testing.T) {
				code, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, suffix != ".mlir", bytes.HasPrefix(code, []byte("ML\xefR")), "the magic of bytecode")
				program := pjrt.Program{Code: code}
				_, err = client.Compile(ctx, program, pjrt.CompileOptions{})
				require.ErrorIs(t, err, pjrt.ErrUntrusted)
				x, err := c.Compile(ctx, client, program, pjrt.CompileOptions{})
				if err == nil {
					x.Close()
				}
				require.Error(t, err)
				var died *worker.Error
				assert.False(t, errors.As(err, &died), "the worker is not ended: %v", err)
				switch suffix {
				case ".mlir":
					errorOfText = err.Error()
				case ".vhlo":
					assert.EqualError(t, err, errorOfText)
				}
				program.Trusted = true
				if x, err := client.Compile(ctx, program, pjrt.CompileOptions{}); !assert.Error(t, err) {
					x.Close()
				}
			})
		}
	}
}

func TestDynamicSizesInsideProgram(t *testing.T) {
	ctx := context.Background()
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{Timeout: 60 * time.Second})
	p := function("%x: tensor<8xf32>, %n: tensor<i32>", "tensor<f32>",
		`%y = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
 %z = stablehlo.constant dense<0.0> : tensor<f32>
 %o = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0] : (tensor<?xf32,
	#stablehlo.bounds<8>>, tensor<f32>) -> tensor<f32>
 return %o : tensor<f32>`)
	x, err := c.Compile(ctx, client, p, pjrt.CompileOptions{})
	require.NoError(t, err)
	defer x.Close()
	device := x.AddressableDevices()[0]
	ones := make([]byte, 0, 32)
	for range 8 {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
	}
	values, err := client.BufferFromHost(ctx, ones, pjrt.F32, []int{8}, device)
	require.NoError(t, err)
	defer values.Close()
	size, err := client.BufferFromHost(ctx, []byte{3, 0, 0, 0}, pjrt.S32, nil, device)
	require.NoError(t, err)
	defer size.Close()
	results := [][]*pjrt.Buffer{make([]*pjrt.Buffer, 1)}
	require.NoError(t, x.Execute(ctx, [][]*pjrt.Buffer{{values, size}}, results, pjrt.ExecuteOptions{}))
	defer results[0][0].Close()
	got := make([]byte, 4)
	require.NoError(t, results[0][0].ToHost(ctx, got))
	assert.Equal(t, float32(3), math.Float32frombits(binary.LittleEndian.Uint32(got)))
}
