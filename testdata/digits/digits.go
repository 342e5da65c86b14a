// Package digits carries the 1,797 handwritten digits of README.md, so that a
// program finds them wherever it is started.
package digits

import (
	_ "embed"
	"strings"
)

//go:embed digits.csv.gz
var compressed string

// Open returns the data, gzip compressed: a line of 65 comma-separated integers a
// digit, 64 pixels from 0 to 16 row by row, then the class.
func Open() *strings.Reader { return strings.NewReader(compressed) }
