//go:build !linux

package bar

import "os"

// columnsOf returns the width of a terminal, or 0 if it is not known.
func columnsOf(*os.File) int { return 0 }
