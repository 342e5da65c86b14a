package report

import (
	"bytes"
	"regexp"
	"strconv"
)

// knownTrips is how compilers note the rounds of a loop, in its configuration.
var knownTrips = regexp.MustCompile(`"known_trip_count":\s*\{\s*"n":\s*"([0-9]{1,9})"`)

func tripCount(config []byte) int {
	if !bytes.Contains(config, []byte("known_trip_count")) {
		return 0
	}
	if m := knownTrips.FindSubmatch(config); m != nil {
		// The expression lets few digits through only.
		n, _ := strconv.Atoi(string(m[1]))
		return n
	}
	return 0
}

// slicesHandler is what the attributes of a transfer between slices name.
const slicesHandler = "xla_megascale_runtime"

// maxCycles is some days of a core: what is more is no estimate.
const maxCycles = 1 << 50

// noted is how the compiler of TPUs notes its estimate, in the configuration of an instruction.
var noted = []byte(`"estimated_cycles":"`)

// estimatedCycles reads the compiler's estimate; 0 if there is none that can be true.
func estimatedCycles(config []byte) int64 {
	_, after, found := bytes.Cut(config, noted)
	digits, _, ended := bytes.Cut(after[:min(len(after), 24)], []byte(`"`))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if !found || !ended || err != nil || n < 0 || n > maxCycles {
		return 0
	}
	return n
}

// oneRingEmitter is how the compiler of TPUs begins the names of its ways along one ring.
var oneRingEmitter = []byte(`"emitter":"1D`)

// transferType is how the compiler of TPUs names what the hosts of several slices do with what they
// are sent.
var transferType = regexp.MustCompile(`(?s)_xla_megascale_transfer_type\x12.([A-Z_]+)`)

func exchangeOf(attributes []byte) string {
	if m := transferType.FindSubmatch(attributes); m != nil {
		return string(m[1])
	}
	return ""
}
