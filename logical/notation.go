package logical

import (
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// String returns the annotation as text. This notation is also used in flags, files and error
// messages. A split over named axes is formatted like [sharding.Spec.String], as in
// "-,model+expert". A split by number consists of its numbers, as in "1,2". Other annotations are
// "assign=0", "replicate" and "none". The split of a scalar is "()". [ParseAnnotation] parses this
// notation.
func (a Annotation) String() string {
	switch {
	case a.kind == KindAssign:
		return "assign=" + strconv.Itoa(a.device)
	case a.kind == KindReplicate:
		return "replicate"
	case a.kind != KindSplit:
		return "none"
	case a.axes != nil || len(a.parts) == 0:
		dims := make([]sharding.Dim, len(a.axes))
		for i, names := range a.axes {
			dims[i].Axes = names
		}
		return sharding.NewSpec(dims...).String()
	}
	parts := make([]string, len(a.parts))
	for i, part := range a.parts {
		parts[i] = strconv.Itoa(part)
	}
	return strings.Join(parts, ",")
}

// ParseAnnotation parses the notation of [Annotation.String]. It ignores spaces between entries,
// and parses "()" as a split over named axes. The error for malformed text matches
// [sharding.ErrSyntax].
func ParseAnnotation(text string) (Annotation, error) {
	text = strings.TrimSpace(text)
	switch text {
	case "none":
		return Annotation{}, nil
	case "replicate":
		return Replicated(), nil
	}
	if device, ok := strings.CutPrefix(text, "assign="); ok {
		if n, err := strconv.Atoi(device); err == nil {
			return AssignTo(n), nil
		}
	}
	if parts, ok := parseInts(text); ok {
		return SplitInto(parts...), nil
	}
	spec, err := sharding.ParseSpec(text)
	if err != nil {
		return Annotation{}, err
	}
	a := Annotation{kind: KindSplit, axes: make([][]string, spec.Rank())}
	for i, dim := range spec.Dims() {
		if dim.Open || len(spec.ReplicatedAxes()) > 0 {
			return Annotation{}, &errkind.Fault{Op: "logical: split " + strconv.Quote(text), Match: sharding.ErrSyntax,
				Class: errkind.ValueError, Reason: "an annotation has no open dimensions or replicated axes",
				Hint: "remove ? and replicated="}
		}
		a.axes[i] = dim.Axes
	}
	return a, nil
}

func parseInts(text string) (all []int, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, false
		}
		all = append(all, n)
	}
	return all, true
}
