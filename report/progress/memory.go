package progress

import (
	"fmt"
	"os"
)

// memoryOf returns the resident memory of a process in bytes, of this one for 0; 0 if it is not
// known, as on systems without /proc, or for a negative number.
func memoryOf(pid int) int64 {
	if pid < 0 {
		return 0
	}
	of := "self"
	if pid > 0 {
		of = fmt.Sprint(pid)
	}
	text, err := os.ReadFile("/proc/" + of + "/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
