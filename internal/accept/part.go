package accept

import (
	"context"
	"slices"
	"time"
)

// Part is one test of an acceptance run, such as the test of the collectives, with its time limits.
type Part struct {
	Name, Description         string
	TimeLimit, QuickTimeLimit time.Duration
	check                     func(ctx context.Context, w *partRun) error
}

// startName is the name of the part that opens the devices for all other parts.
const startName = "start"

// killName is the part that kills a host if [Options].Kill is set. It must be the last part.
const killName = "kill"

// parts lists all parts in the order in which they run. Their time limits add up to at most 15
// minutes, or 2 minutes with Quick.
var parts []Part

func init() {
	const s = time.Second
	parts = []Part{
		{startName, "opens the devices, together with the other hosts", 180 * s, 30 * s, openDevices},
		{"versions", "what is installed, and whether all hosts have the same", 10 * s, 3 * s, checkVersions},
		{"environment", "what the resolver and the host say", 5 * s, 2 * s, readEnvironment},
		{"devices", "the devices, their coordinates and processes against the table", 10 * s, 3 * s, checkDeviceTable},
		{"collectives", "each collective over replicas, logical devices, all and groups", 90 * s, 14 * s,
			checkAllCollectives},
		{"dtypes", "each dtype, through memory, arithmetic and a sum", 60 * s, 11 * s, checkDTypes},
		{"splits", "tensors and variables split in every form", 60 * s, 10 * s, checkSplits},
		{"donation", "variables updated in their own memory", 25 * s, 5 * s, checkDonation},
		{"random", "the replicas' random numbers", 20 * s, 3 * s, checkRandomNumbers},
		{"batches", "batches that do not divide among the replicas", 20 * s, 4 * s, checkUnevenBatches},
		{"training", "100 steps against the stored losses", 120 * s, 12 * s, checkTraining},
		{"checkpoint", "saved, changed, restored", 60 * s, 4 * s, checkCheckpoint},
		{"transfers", "host to device and back", 30 * s, 2 * s, measureTransfers},
		{"memory", "bandwidth of the devices' memory", 20 * s, 2 * s, measureMemoryBandwidth},
		{"links", "bandwidth of all-reduces, by size", 40 * s, 3 * s, measureLinks},
		{"matmul", "matrix products against the published peak", 25 * s, 2 * s, measureMatmul},
		{killName, "a host ends, where --kill asks for it", 30 * s, 10 * s, killHost},
	}
}

// Parts returns all tests of an acceptance run, in the order in which they run.
func Parts() []Part { return slices.Clone(parts) }
