package status

import "time"

// See returns a look at records that were read at a time, and At the hosts.
var (
	See = (*View).look
	At  = (*View).at
)

// Changed reports whether a host was seen alive, and Skew how far its clock is ahead.
func Changed(h *Host) bool { return h.changed }

func Skew(h *Host) time.Duration { return h.skew }
