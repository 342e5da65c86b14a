package probe

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tpustrategy/tpustrategy/plan"
	"github.com/tpustrategy/tpustrategy/report"
)

// Sketch says what shows of a program by the report of its text alone.
func Sketch(p Program, r *report.Report) plan.Sketch {
	facts := p.Slice.Facts()
	sum := sha256.Sum256(p.Code)
	s := plan.Sketch{Program: hex.EncodeToString(sum[:]), Limit: facts.HBMBytes}
	updated := int64(0)
	for _, t := range r.Tensors {
		if t.Role != "result" {
			s.Bytes += t.BytesPerCore
		}
		if t.Donated {
			updated += t.BytesPerCore
		}
	}
	if facts.PeakFLOPS > 0 && facts.HBMBandwidth > 0 {
		products := r.Cost.ModelFLOPs / (facts.PeakFLOPS * float64(p.Replicas*p.Logical))
		memory := float64(s.Bytes+updated) / facts.HBMBandwidth // variables are read, and the updated ones written
		s.Seconds, s.Expected = max(products, memory), products+memory
	}
	return s
}
