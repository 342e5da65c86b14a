package logical

import (
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// String returns the annotation in the notation of splits, which is that of flags, files and messages,
// too: a split by names as [sharding.Spec.String] has it, such as -,model+expert; a split by numbers as
// its numbers, such as 1,2; and otherwise assign=0, replicate or none. A scalar that is split is ().
// [ParseAnnotation] is the inverse.
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

// ParseAnnotation reads an annotation in the notation of [Annotation.String]; spaces between its parts
// are skipped. () is read as a split by names. The error of another text matches [sharding.ErrSyntax].
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
	if parts, ok := numbers(text); ok {
		return SplitInto(parts...), nil
	}
	spec, err := sharding.ParseSpec(text)
	if err != nil {
		return Annotation{}, err
	}
	a := Annotation{kind: KindSplit, axes: make([][]string, spec.Rank())}
	for i, dim := range spec.Dims() {
		if dim.Open || len(spec.ReplicatedAxes()) > 0 {
			return Annotation{}, &errkind.Fault{Op: "logical: split " + strconv.Quote(text), Match: sharding.ErrSyntax, Class: errkind.ValueError,
				Reason: "an annotation says all of it", Hint: "leave out ? and replicated="}
		}
		a.axes[i] = dim.Axes
	}
	return a, nil
}

// numbers reads numbers with commas between them.
func numbers(text string) (all []int, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, false
		}
		all = append(all, n)
	}
	return all, true
}
