package diff

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
)

// collectives compares the collectives of the two steps, grouped by kind, axis, group size and
// dtype. Axes with the same name but different sizes are compared with each other. A kind that
// occurs in only one of the steps may replace another kind, for example a reduce-scatter an
// all-reduce. Such a change counts as [Same], unless the count and the bytes of all collectives
// over the axis change in the same direction.
func (c *comparison) collectives() {
	var by [2]map[string]report.Collective
	var axes [2]map[string]report.Collective
	var dtypes [2]map[string]map[string]int64
	nameOf := c.names()
	for side, r := range []*report.Report{c.before, c.after} {
		by[side], axes[side], dtypes[side] = map[string]report.Collective{}, map[string]report.Collective{},
			map[string]map[string]int64{}
		for _, one := range r.Collectives {
			name := nameOf(one.Kind, one.Axis, one.GroupSize)
			by[side][name] = sum(by[side][name], one)
			axes[side][one.Axis] = sum(axes[side][one.Axis], one)
		}
		for _, one := range r.CollectiveDTypes {
			name := nameOf(one.Kind, one.Axis, one.GroupSize)
			if dtypes[side][name] == nil {
				dtypes[side][name] = map[string]int64{}
			}
			dtypes[side][name][one.DType] += one.Bytes
		}
	}
	for _, name := range union(by[0], by[1]) {
		b, a := by[0][name], by[1][name]
		if b == a {
			continue
		}
		var text string
		switch {
		case b.Count == 0:
			text = fmt.Sprintf("new, %d of them; their operands are %s, and a core sends %s", a.Count, units.Bytes(a.Bytes),
				units.Bytes(a.Moved))
		case a.Count == 0:
			text = fmt.Sprintf("gone, %d of them, of which a core sent %s", b.Count, units.Bytes(b.Moved))
		default:
			text = fmt.Sprintf("%d of them", a.Count)
			if a.Count != b.Count {
				text += fmt.Sprintf(", was %d", b.Count)
			}
			if a.Bytes != b.Bytes {
				text += fmt.Sprintf("; their operands are %s, were %s", units.Bytes(a.Bytes), units.Bytes(b.Bytes))
			}
			if a.Moved != b.Moved {
				text += fmt.Sprintf("; a core sends %s, was %s", units.Bytes(a.Moved), units.Bytes(b.Moved))
			}
		}
		v := c.collective(b, a)
		if axis := a.Axis + b.Axis; v != Same && (a.Count == 0 || b.Count == 0) && axes[0][axis].Count > 0 &&
			axes[1][axis].Count > 0 && c.collective(axes[0][axis], axes[1][axis]) != v {
			v, text = Same, text+", one in the place of another"
		}
		c.Changes = append(c.Changes, Change{What: "collectives", Subject: name, Verdict: v, Before: float64(b.Moved),
			After: float64(a.Moved), Unit: unitBytes,
			Text: name + ": " + text})
	}
	for _, name := range union(dtypes[0], dtypes[1]) {
		c.widened(name, dtypes[0][name], dtypes[1][name])
	}
}

// names returns a function that returns a name for the collectives of a kind over an axis, such as
// "all-reduce over replica of 8 cores". If the size of the axis differs between the two reports,
// the name contains both sizes.
func (c *comparison) names() func(kind, axis string, size int) string {
	var sizes [2]map[string][]int
	for side, r := range []*report.Report{c.before, c.after} {
		sizes[side] = map[string][]int{}
		for _, one := range r.Collectives {
			if !slices.Contains(sizes[side][one.Axis], one.GroupSize) {
				sizes[side][one.Axis] = append(sizes[side][one.Axis], one.GroupSize)
			}
		}
	}
	return func(kind, axis string, size int) string {
		b, a := sizes[0][axis], sizes[1][axis]
		switch {
		case axis == "":
			return kind
		case len(b) == 1 && len(a) == 1 && b[0] != a[0]:
			return fmt.Sprintf("%s over %s of %d cores, was of %d", kind, axis, a[0], b[0])
		}
		return fmt.Sprintf("%s over %s of %d cores", kind, axis, size)
	}
}

func sum(a, b report.Collective) report.Collective {
	return report.Collective{Axis: b.Axis, Count: a.Count + b.Count, Bytes: a.Bytes + b.Bytes, Moved: a.Moved + b.Moved}
}

// collective returns the verdict on a change of collectives. Both their count and the bytes sent
// matter, because each collective has a latency.
func (c *comparison) collective(before, after report.Collective) Verdict {
	moved := c.bytes(before.Moved, after.Moved)
	switch {
	case after.Count > before.Count || moved == Worse:
		return Worse
	case after.Count < before.Count:
		return Better
	}
	return moved
}
