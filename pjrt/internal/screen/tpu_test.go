package screen

import "testing"

func TestWhatTheTPUCompilerCannotRead(t *testing.T) {
	for code, bad := range map[string]bool{
		"func.func @main(%x: tensor<2xcomplex<f64>>)":        true,
		"func.func @main(%x: tensor<complex< f64 >>)":        true,
		"!t = complex<f64>":                                  true,
		"func.func @main(%x: tensor<2xcomplex<f32>>)":        false,
		"func.func @main(%x: tensor<2xf64>)":                 false,
		`loc("complex<f64>") // complex<f64>`:                false,
		mlirBytecodeMagic + "complex<f64>":                   false,
		"func.func @complex(%x: tensor<f64>) -> tensor<f64>": false,
	} {
		if err := TPU([]byte(code)); (err != nil) != bad {
			t.Errorf("%q: %v", code, err)
		}
	}
}
