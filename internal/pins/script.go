package pins

import _ "embed"

// Script is the installer, install.sh, for programs that carry it with them. It
// reads [Table] from a file pins.tsv beside it.
//
//go:embed install.sh
var Script string

// Table is pins.tsv, which [All] reads.
func Table() string { return table }
