package digits

import (
	"embed"
	"strings"
)

//go:embed digits.csv.gz
var compressed string

// Open returns a reader of the gzip-compressed data. Each digit is one line of 65 comma-separated
// integers: 64 pixels from 0 to 16 in row-major order, then the class.
func Open() *strings.Reader { return strings.NewReader(compressed) }

// IDX contains the same digits in the file format of MNIST, which package input/idx reads. Of each
// 50 digits, the last ten are in the test set "t10k" and the others in the set "train". Pixels are
// 0 to 255.
//
//go:embed *-ubyte.gz
var IDX embed.FS
