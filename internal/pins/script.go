package pins

import _ "embed"

// Script is the source of install.sh, for programs that contain it. The script reads [Table] from a
// file pins.tsv in its directory.
//
//go:embed install.sh
var Script string

// Table returns the contents of pins.tsv, which [All] reads.
func Table() string { return table }
