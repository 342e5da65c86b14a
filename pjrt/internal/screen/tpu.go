package screen

import (
	"bytes"
	"strings"
)

// TPU says what of a program is known to end the process as libtpu's compiler
// partitions it: complex<f64>, where parts of it meet. Bytecode encodes its types, and
// passes.
func TPU(code []byte) error {
	if bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) {
		return nil
	}
	s := string(code)
	for i := 0; i < len(s); {
		if i = skipSpace(s, i); i == len(s) {
			break
		}
		switch c := s[i]; {
		case c == '"':
			_, n := scanString(s[i:])
			i += n
		case isName(c):
			word := s[i:endOfName(s, i)]
			i += len(word)
			// The dimensions before an element type are of its word: 2xcomplex.
			if strings.HasSuffix(word, "complex") && i < len(s) && s[i] == '<' && strings.HasPrefix(s[skipSpace(s, i+1):], "f64") {
				return codeError("it has complex<f64> at byte %d, which crashes the TPU compiler as it partitions the program: use complex<f32> (Complex64)", i-len("complex"))
			}
		default:
			i++
		}
	}
	return nil
}
