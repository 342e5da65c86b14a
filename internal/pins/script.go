package pins

import _ "embed"

// Script is the installer, install.sh, for programs that carry it with them. It
// reads [Table] from a file pins.tsv beside it.
//
//go:embed install.sh
var Script string

// Table returns the contents of pins.tsv, which [All] reads.
func Table() string { return table }
