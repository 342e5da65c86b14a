//go:build !linux

package status

// Machine says on which machine, and among which of its processes, the number of this process
// counts. It is empty where that is not known.
func Machine() string { return "" }

func processState(*Record) string { return "" }
