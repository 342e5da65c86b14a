package diff

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

func (c *comparison) tensors() {
	pairs, gone, more := paired(c.before.Tensors, c.after.Tensors,
		func(t memory.Tensor) string { return t.Role + " " + t.Name },
		func(t memory.Tensor) string { return fmt.Sprint(t.Role, t.DType, t.Shape, t.Annotation, t.Donated) },
		func(t memory.Tensor) string { return fmt.Sprint(t.Role, t.DType, t.Shape, t.Annotation) },
		func(t memory.Tensor) string { return fmt.Sprint(t.Role, t.Shape) })
	for _, p := range pairs {
		b, a := p[0], p[1]
		if b.Donated != a.Donated {
			v, text := Worse, "is no longer donated: its next value needs %s more per core"
			if a.Donated {
				v, text = Better, "is donated: its next value reuses its %s per core"
			}
			c.ofTensor("donation", a, v, a.BytesPerCore, b.BytesPerCore, fmt.Sprintf(text, units.Bytes(a.BytesPerCore)))
		}
		var was []string
		if b.DType != a.DType || !slices.Equal(b.Shape, a.Shape) {
			was = append(was, fmt.Sprintf("was %s%v", b.DType, b.Shape))
		}
		if b.Annotation != a.Annotation {
			was = append(was, fmt.Sprintf("sharded as %s, was %s", a.Annotation, b.Annotation))
		}
		if b.BytesPerCore != a.BytesPerCore || len(was) > 0 {
			was = append([]string{fmt.Sprintf("uses %s per core, was %s", units.Bytes(a.BytesPerCore),
				units.Bytes(b.BytesPerCore))}, was...)
			c.ofTensor("tensor", a, c.bytes(b.BytesPerCore, a.BytesPerCore), b.BytesPerCore, a.BytesPerCore,
				strings.Join(was, ", "))
		}
	}
	for _, t := range gone {
		c.ofTensor("tensor", t, c.bytes(t.BytesPerCore, 0), t.BytesPerCore, 0, fmt.Sprintf("was removed and used %s per core",
			units.Bytes(t.BytesPerCore)))
	}
	for _, t := range more {
		c.ofTensor("tensor", t, c.bytes(0, t.BytesPerCore), 0, t.BytesPerCore, fmt.Sprintf("is new and uses %s per core",
			units.Bytes(t.BytesPerCore)))
	}
}

func (c *comparison) ofTensor(what string, t memory.Tensor, v Verdict, before, after int64, text string) {
	c.Changes = append(c.Changes, Change{What: what, Subject: t.Name, Verdict: v, Before: float64(before),
		After: float64(after), Unit: unitBytes,
		Text: fmt.Sprintf("%s %s %s%v %s", t.Role, t.Name, t.DType, t.Shape, text)})
}

// paired matches the elements of two lists. It first pairs elements with equal values of the first
// key, then pairs the remaining elements by the second key, and so on. It also returns the elements
// of each list that have no match.
func paired[T any](before, after []T, keys ...func(T) string) (pairs [][2]T, gone, more []T) {
	for _, key := range keys {
		at := map[string][]T{}
		for _, x := range before {
			at[key(x)] = append(at[key(x)], x)
		}
		more = nil
		for _, x := range after {
			k := key(x)
			if len(at[k]) == 0 {
				more = append(more, x)
				continue
			}
			pairs = append(pairs, [2]T{at[k][0], x})
			at[k] = at[k][1:]
		}
		gone = nil
		for _, x := range before {
			if left := at[key(x)]; len(left) > 0 {
				// The remaining elements are the last ones with their key.
				gone = append(gone, left[0])
				at[key(x)] = left[1:]
			}
		}
		before, after = gone, more
	}
	return pairs, gone, more
}

// temporaries compares the largest temporaries of the two steps. A report contains only a limited
// number of them, so a small temporary that is missing in a report may exist nevertheless.
func (c *comparison) temporaries() {
	b, a := c.before.Temporaries, c.after.Temporaries
	if len(b) == 0 || len(a) == 0 {
		return
	}
	text := func(t memory.Temporary) string {
		text := fmt.Sprintf("%s %s%v", t.Operation, t.DType, t.Shape)
		if t.Source != "" {
			text += " of " + t.Source
		}
		return text
	}
	c.figure("largest temporary", float64(b[0].Bytes), float64(a[0].Bytes), unitBytes, c.tolerance.Share, leastBytes,
		fmt.Sprintf("%s, was %s", text(a[0]), text(b[0])))
	least := max(b[len(b)-1].Bytes, a[len(a)-1].Bytes)
	copies, dtypes := [2]map[string]int64{{}, {}}, [2]map[string]map[string]int64{{}, {}}
	for side, list := range [][]memory.Temporary{b, a} {
		for _, t := range list {
			if t.Bytes < least {
				continue // incomparable with the other list
			}
			shape := fmt.Sprint(t.Shape)
			if t.Operation == "copy" {
				copies[side][t.DType+shape] += t.Bytes * int64(t.Count)
			}
			if dtypes[side][shape] == nil {
				dtypes[side][shape] = map[string]int64{}
			}
			dtypes[side][shape][t.DType] += t.Bytes * int64(t.Count)
		}
	}
	for _, of := range union(copies[0], copies[1]) {
		c.figure("copies of "+of, float64(copies[0][of]), float64(copies[1][of]), unitBytes, c.tolerance.Share, leastBytes,
			"")
	}
	for _, shape := range union(dtypes[0], dtypes[1]) {
		c.widened("temporaries of shape "+shape, dtypes[0][shape], dtypes[1][shape])
	}
}

// widened adds a change if bytes move between floating-point dtypes of different widths, for
// example because a bfloat16 step now computes some values in float32. before and after contain the
// bytes of each dtype.
func (c *comparison) widened(subject string, before, after map[string]int64) {
	less, more := "", ""
	for _, d := range union(before, after) {
		switch {
		case width(d) == 0:
		case c.bytes(before[d], after[d]) == Worse:
			more = cmp.Or(more, d)
		case c.bytes(before[d], after[d]) == Better:
			less = cmp.Or(less, d)
		}
	}
	if less == "" || more == "" || width(less) == width(more) {
		return
	}
	v := Worse
	if width(more) < width(less) {
		v = Better
	}
	c.Changes = append(c.Changes, Change{What: "dtype", Subject: subject, Verdict: v, Before: float64(before[more]),
		After: float64(after[more]), Unit: unitBytes,
		Text: fmt.Sprintf("%s have %s of %s, was %s, and %s of %s, was %s", subject, units.Bytes(after[more]), more,
			units.Bytes(before[more]),
			units.Bytes(after[less]), less, units.Bytes(before[less]))})
}

var float = regexp.MustCompile(`^b?f([0-9]{1,3})`)

// width returns the number of bits of a floating-point dtype, or 0 for other dtypes.
func width(dtype string) int {
	m := float.FindStringSubmatch(dtype)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // the regular expression allows only few digits
	return n
}

// union returns the keys of both maps in ascending order.
func union[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
