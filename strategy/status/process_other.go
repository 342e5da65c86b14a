//go:build !linux

package status

import "time"

// Machine says on which machine, and among which of its processes, the number of this process
// counts. It is empty where that is not known.
func Machine() string { return "" }

// ProcessAge is how long this process has been running; 0 where that is not known.
func ProcessAge() time.Duration { return 0 }

func processState(*Record) string { return "" }
