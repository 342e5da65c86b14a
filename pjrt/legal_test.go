package pjrt_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/screen"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// legal are the programs of a file: names to texts.
func legal(t *testing.T, file string) map[string]string {
	text, err := os.ReadFile(filepath.Join("..", "internal", "screen", "testdata", file))
	require.NoError(t, err)
	programs := map[string]string{}
	for _, part := range strings.Split(string(text), "// ===== ")[1:] {
		name, program, _ := strings.Cut(part, "\n")
		programs[name] = program
	}
	return programs
}

// Legal programs are not refused, in either form: each operation with each attribute.
func TestLegalProgramsOfAllOperationsCompile(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	for _, file := range []string{"stablehlo.mlir", "generic.mlir"} {
		programs := legal(t, file)
		assert.Len(t, programs, 27)
		for name, text := range programs {
			t.Run(file+", "+name, func(t *testing.T) {
				var all []pjrt.CompileOptions
				switch {
				case strings.Contains(name, "GSPMD"):
					all = append(all, pjrt.CompileOptions{Partitions: 2, SPMD: true})
				case strings.Contains(name, "2 partitions"):
					all = append(all, spmd(2))
				default:
					all = append(all, pjrt.CompileOptions{}, spmd(2))
				}
				for _, o := range all {
					for _, s := range []screen.Options{{Host: true}, {TPU: true}} {
						if s.TPU && strings.Contains(name, "on the host") {
							continue
						}
						s.Shardy, s.Partitions, s.Replicas = o.Shardy, o.Partitions, o.Replicas
						code, err := screen.MLIR([]byte(text), s)
						require.NoError(t, err)
						assert.Equal(t, text, string(code), "it is compiled as it is")
					}
				}
				if strings.Contains(name, "has not") {
					return
				}
				compile(t, c, pjrt.Program{Code: []byte(text)}, all[0])
			})
		}
	}
}

// Nor are they for libtpu.
func TestLegalProgramsCompileForTPUs(t *testing.T) {
	if !inTPUChild(t) {
		return
	}
	p := plugintest.Open(t, "tpu")
	topology, err := p.NewTopology(background, "v5e:2x2", nil)
	require.NoError(t, err)
	defer topology.Close()
	for name, text := range legal(t, "stablehlo.mlir") {
		o := pjrt.CompileOptions{}
		switch {
		case strings.Contains(name, "has not") || strings.Contains(name, "on the host"):
			continue
		case strings.Contains(name, "convolution") || name == "transforms":
			continue // they take most of a minute each
		case strings.Contains(name, "GSPMD"):
			o = pjrt.CompileOptions{Partitions: 2, SPMD: true}
		case strings.Contains(name, "2 partitions"):
			o = spmd(2)
		}
		t.Run(name, func(t *testing.T) {
			x, err := p.Compile(background, topology, pjrt.Program{Code: []byte(text)}, o)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err) // the compiler's own word, such as on algorithms of dots
			}
			require.NoError(t, err)
			require.NoError(t, x.Close())
		})
	}
}
