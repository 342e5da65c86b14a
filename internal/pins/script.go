package pins

import _ "embed"

// InstallScript is the content of install.sh, for programs that embed it. The script expects
// [TableText] in a file pins.tsv in its directory.
//
//go:embed install.sh
var InstallScript string

// TableText returns the content of pins.tsv.
func TableText() string { return tableText }
