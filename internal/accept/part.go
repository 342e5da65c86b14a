package accept

import (
	"context"
	"slices"
	"time"
)

// Part is a piece of a run: its name, what it does, and its time, in a quick run too.
type Part struct {
	Name, Says  string
	Full, Quick time.Duration
	run         func(ctx context.Context, w *work) error
}

// startPart opens the devices, for all others.
const startPart = "start"

// killPart ends a host, if that is asked for. It is the last one: nothing works after it.
const killPart = "kill"

// parts are all of them, in their order. Their times add up to 15 minutes at most, those of a quick
// run to 2.
var parts []Part

func init() {
	const s = time.Second
	parts = []Part{
		{startPart, "opens the devices, together with the other hosts", 180 * s, 30 * s, start},
		{"versions", "what is installed, and whether all hosts have the same", 10 * s, 3 * s, versions},
		{"environment", "what the resolver and the host say", 5 * s, 2 * s, environment},
		{"devices", "the devices, their coordinates and processes against the table", 10 * s, 3 * s, devices},
		{"collectives", "each collective over replicas, logical devices, all and groups", 90 * s, 14 * s, collectives},
		{"dtypes", "each dtype, through memory, arithmetic and a sum", 60 * s, 11 * s, dtypesPart},
		{"splits", "tensors and variables split in every form", 60 * s, 10 * s, splits},
		{"donation", "variables updated in their own memory", 25 * s, 5 * s, donation},
		{"random", "the replicas' random numbers", 20 * s, 3 * s, random},
		{"batches", "batches that do not divide among the replicas", 20 * s, 4 * s, batches},
		{"training", "100 steps against the stored losses", 120 * s, 12 * s, training},
		{"checkpoint", "saved, changed, restored", 60 * s, 4 * s, checkpoints},
		{"transfers", "host to device and back", 30 * s, 2 * s, transfers},
		{"memory", "bandwidth of the devices' memory", 20 * s, 2 * s, memoryBandwidth},
		{"links", "bandwidth of all-reduces, by size", 40 * s, 3 * s, links},
		{"matmul", "matrix products against the published peak", 25 * s, 2 * s, matmul},
		{killPart, "a host ends, where --kill asks for it", 30 * s, 10 * s, kill},
	}
}

// Parts returns the parts in their order.
func Parts() []Part { return slices.Clone(parts) }
