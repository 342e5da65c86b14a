package pins

import _ "embed"

// InstallScript is the source of install.sh, for programs that contain it. The script reads
// [TableText] from a file pins.tsv in its directory.
//
//go:embed install.sh
var InstallScript string

// TableText returns the contents of pins.tsv, which [All] reads.
func TableText() string { return tableText }
