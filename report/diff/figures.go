package diff

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/cost"
)

func (c *comparison) memory() {
	b, a := c.before.Memory, c.after.Memory
	share := c.tolerance.Share
	if fits(b) != fits(a) {
		v, text := Worse, "it no longer fits: it needs "
		if fits(a) {
			v, text = Better, "it fits now: it needs "
		}
		needs := units.Bytes(a.Needs)
		if a.Needs == 0 {
			needs = "more"
		}
		c.Changes = append(c.Changes, Change{What: "fits", Verdict: v, Before: float64(b.Needs), After: float64(a.Needs),
			Unit: unitBytes,
			Text: text + needs + " of the " + units.Bytes(max(a.Limit, b.Limit)) + " of a core"})
	}
	c.some("memory", float64(b.Needs), float64(a.Needs), unitBytes, share, leastBytes, "")
	if b.Refused || a.Refused {
		c.note("the compiler rejected a step as too large, so its other figures are unknown")
		return
	}
	if b.Total == 0 || a.Total == 0 {
		return
	}
	c.some("peak memory", float64(b.Peak), float64(a.Peak), unitBytes, share, leastBytes, "")
	for _, x := range []struct {
		what          string
		before, after int64
		share         float64
	}{
		{"arguments", b.Arguments, a.Arguments, share}, {"outputs in memory of their own", b.Outputs - b.Aliased,
			a.Outputs - a.Aliased, share},
		{"temporaries", b.Temporaries, a.Temporaries, share}, {"code", b.Code, a.Code, c.tolerance.Code},
	} {
		c.figure(x.what, float64(x.before), float64(x.after), unitBytes, x.share, leastBytes, "")
	}
}

func fits(m report.Memory) bool { return !m.Refused && m.Verdict != report.TooLarge }

func (c *comparison) cost() {
	b, a, t := c.before.Cost, c.after.Cost, c.tolerance
	c.some("operations of a core", b.FLOPs, a.FLOPs, unitFLOP, t.Share, 0, "")
	c.some("bytes accessed", b.BytesAccessed, a.BytesAccessed, unitBytes, t.Share, leastBytes, "")
	c.some("roofline", b.RooflineSeconds, a.RooflineSeconds, unitSeconds, t.Share, 1e-6, "")
	before, after := c.before.Predicted, c.after.Predicted
	if before == nil {
		before = &cost.Prediction{}
	}
	if after == nil {
		after = &cost.Prediction{}
	}
	c.some("predicted time", before.Seconds, after.Seconds, unitSeconds, t.Share, 1e-6, parts(before, after))
	if b, a := unknown(before), unknown(after); b != a && before.Seconds > 0 && after.Seconds > 0 {
		c.note("the prediction omits %d operations of unknown time, was %d", a, b)
	}
	c.some("time to compile", c.before.CompilingSeconds, c.after.CompilingSeconds, unitSeconds, t.Compile, 10, "")
	c.some("the step's text", float64(c.before.TextBytes), float64(c.after.TextBytes), unitBytes, t.Code, leastBytes, "")
}

func parts(before, after *cost.Prediction) string {
	var list []string
	for _, x := range []struct {
		name          string
		before, after float64
	}{
		{"products", before.Products, after.Products}, {"memory", before.Memory, after.Memory},
		{"waits for collectives", before.Interconnect.Exposed, after.Interconnect.Exposed}, {"waits for other slices",
			before.Network.Exposed, after.Network.Exposed},
	} {
		if verdict(x.before, x.after, 0, 1e-6) != Same {
			list = append(list, fmt.Sprintf("%s %s, were %s", x.name, units.Seconds(x.after), units.Seconds(x.before)))
		}
	}
	return strings.Join(list, ", ")
}

func unknown(p *cost.Prediction) (n int) {
	for _, x := range p.Unknown {
		n += x.Count
	}
	return n
}
