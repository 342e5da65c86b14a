package screen

import "testing"

func TestWhatTheTPUCompilerCannotRead(t *testing.T) {
	for code, bad := range map[string]bool{
		"func.func @main(%x: tensor<2xcomplex<f64>>) { return }": true,
		"func.func @main(%x: tensor<complex< f64 >>) { return }": true,
		"!t = complex<f64>": true,
		"func.func @main(%x: tensor<2xcomplex<f32>>) { return }":        false,
		"func.func @main(%x: tensor<2xf64>) { return }":                 false,
		`loc("complex<f64>") // complex<f64>`:                           false,
		mlirBytecodeMagic + "complex<f64>":                              false,
		"func.func @complex(%x: tensor<f64>) -> tensor<f64> { return }": false,
	} {
		if _, err := MLIR([]byte(code), Options{TPU: true, Partitions: 2}); (err != nil) != bad {
			t.Errorf("%q: %v", code, err)
		}
		for _, o := range []Options{{TPU: true, Partitions: 1}, {Partitions: 2}} {
			if _, err := MLIR([]byte(code), o); err != nil {
				t.Errorf("%q, %+v: %v", code, o, err)
			}
		}
	}
}
