package hlo

import (
	"bytes"
	"regexp"
	"strconv"
)

// knownTrips matches the number of iterations of a loop in its configuration.
var knownTrips = regexp.MustCompile(`"known_trip_count":\s*\{\s*"n":\s*"([0-9]{1,9})"`)

func tripCount(config []byte) int {
	if !bytes.Contains(config, []byte("known_trip_count")) {
		return 0
	}
	if m := knownTrips.FindSubmatch(config); m != nil {
		// The regular expression allows only few digits.
		n, _ := strconv.Atoi(string(m[1]))
		return n
	}
	return 0
}

// slicesHandler is the name of the host handler that forwards data to other slices.
const slicesHandler = "xla_megascale_runtime"

// maxCycles is the maximum of a valid estimate: several days of a core.
const maxCycles = 1 << 50

// cyclesKey is the key of the TPU compiler's estimate in the configuration of an instruction.
var cyclesKey = []byte(`"estimated_cycles":"`)

// estimatedCycles returns the number of cycles that the compiler estimates for an instruction, or 0
// if config contains no valid estimate.
func estimatedCycles(config []byte) int64 {
	_, after, found := bytes.Cut(config, cyclesKey)
	digits, _, ended := bytes.Cut(after[:min(len(after), 24)], []byte(`"`))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if !found || !ended || err != nil || n < 0 || n > maxCycles {
		return 0
	}
	return n
}

// oneRingEmitter is the prefix of the code generators of the TPU compiler that run a collective as one ring.
var oneRingEmitter = []byte(`"emitter":"1D`)

// transferType matches the collective that the hosts of several slices run on transferred data.
var transferType = regexp.MustCompile(`(?s)_xla_megascale_transfer_type\x12.([A-Z_]+)`)

func hostCollective(attributes []byte) string {
	if m := transferType.FindSubmatch(attributes); m != nil {
		return string(m[1])
	}
	return ""
}
