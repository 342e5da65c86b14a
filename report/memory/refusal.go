package memory

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Refusal is a compiler's error for a program that does not fit into the memory of a core. The
// figures are texts from the error message, such as "31.26G". A figure that the message does not
// contain is empty.
type Refusal struct {
	Used, Limit, Excess string
	// Log is the compiler's complete message, which may list the largest allocations.
	Log string
}

// The compiler's figures, as in "Used 31.26G of 15.75G hbm. Exceeded hbm capacity by 15.51G.", or
// "the total memory required for HLO temporaries (25.00G) exceeds available HBM (15.75G)".
var (
	usedMemory     = regexp.MustCompile(`[Uu]sed ([0-9.]+[A-Za-z]*) of ([0-9.]+[A-Za-z]*) hbm`)
	requiredMemory = regexp.MustCompile(
		`memory required for [A-Za-z ]+ \(([0-9.]+[A-Za-z]*)\) exceeds available HBM \(([0-9.]+[A-Za-z]*)\)`)
	exceededMemory = regexp.MustCompile(`[Ee]xceed[a-z]* [a-z ]*capacity by ([0-9.]+[A-Za-z]+)`)
)

// RefusalOf parses an error of a compiler. It returns nil if the error has another cause than
// insufficient memory.
func RefusalOf(err error) *Refusal {
	var exhausted *pjrt.Error
	if !errors.As(err, &exhausted) || exhausted.Code != pjrt.ResourceExhausted {
		return nil
	}
	r := &Refusal{Log: cmp.Or(exhausted.Log, exhausted.Msg)}
	for _, figures := range []*regexp.Regexp{usedMemory, requiredMemory} {
		if f := figures.FindStringSubmatch(r.Log); f != nil {
			r.Used, r.Limit = f[1], f[2]
		}
	}
	if f := exceededMemory.FindStringSubmatch(r.Log); f != nil {
		r.Excess = f[1]
	}
	return r
}

// UsedBytes returns Used as a number of bytes, or 0 if it is unknown.
func (r *Refusal) UsedBytes() int64 { return parseBytes(r.Used) }

// LimitBytes returns Limit as a number of bytes, or 0 if it is unknown.
func (r *Refusal) LimitBytes() int64 { return parseBytes(r.Limit) }

// parseBytes parses a size in the compiler's format. It returns 0 if the text is not a size.
func parseBytes(text string) int64 {
	var n float64
	unit := ""
	if _, err := fmt.Sscanf(text, "%f%s", &n, &unit); err != nil {
		return 0
	}
	return int64(n * map[string]float64{"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit])
}
