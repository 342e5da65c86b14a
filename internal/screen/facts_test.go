package screen

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A text with facts of its own is not read, any other is.
func TestFactsAreOfOneText(t *testing.T) {
	text := []byte("func.func @main() { stablehlo.infeed }")
	_, err := MLIR(text, Options{})
	require.ErrorContains(t, err, "infeed")
	f := &Facts{}
	f.Function("main", nil)
	for _, facts := range []*Facts{nil, f} {
		known, err := facts.Check(text, Options{})
		assert.False(t, known)
		assert.NoError(t, err)
	}
	f.Of(text)
	known, err := f.Check(text, Options{})
	assert.True(t, known)
	assert.NoError(t, err)
	known, err = f.Check(append(text, ' '), Options{})
	assert.False(t, known)
	assert.NoError(t, err)
}

// Facts refuse what a text with them is refused for.
func TestFactsRefuseWhatCrashesCompilers(t *testing.T) {
	pad := &Operation{Name: "stablehlo.pad", Results: []string{"%1"}, Ins: []string{"tensor<4xf32>", "tensor<f32>"}, Attrs: []Attr{{Key: "edge_padding_low", Value: "array<i64: 9223372036854775807>"}}}
	for says, add := range map[string]func(f *Facts){
		"%1 = stablehlo.pad: it pads dimension 0": func(f *Facts) { f.Function("main", []*Operation{pad}) },
		"more elements than memory":               func(f *Facts) { f.Tensor([]int{1 << 40, 1 << 40}, false) },
		"nested":                                  func(f *Facts) { f.Nested(300) },
		"128 bits":                                func(f *Facts) { f.Tensor(nil, true) },
		"calls itself": func(f *Facts) {
			f.Function("f", []*Operation{{Name: "func.call", Attrs: []Attr{{Key: "callee", Value: "@f"}}}})
		},
	} {
		f := &Facts{}
		add(f)
		f.Of(nil)
		known, err := f.Check(nil, Options{TPU: true, Partitions: 2})
		assert.True(t, known)
		assert.ErrorContains(t, err, says)
	}
}
