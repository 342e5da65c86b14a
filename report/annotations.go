package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// AnnotationSuggestions contains suggested sharding annotations for a step. Each suggestion removes
// collectives over the logical devices, according to a compilation of the step with the suggested
// annotation.
type AnnotationSuggestions struct {
	// Now contains the figures of the step without a change.
	Now AnnotationFigures `json:"now"`
	// All are the suggestions, the best first. Each changes one annotation.
	All []AnnotationSuggestion `json:"suggestions"`
	// Tried is the number of annotations that were compiled. Refused is the number of these that
	// the compiler rejected. Left is the number of annotations that were not compiled.
	Tried   int `json:"tried"`
	Refused int `json:"refused,omitempty"`
	Left    int `json:"left,omitempty"`
}

// AnnotationSuggestion suggests another sharding for an annotated variable, argument or value.
type AnnotationSuggestion struct {
	// Name is the variable or argument that is annotated, or the pattern of Count names that differ
	// only in numbers. The change includes the optimizer state of these variables. Name is empty
	// for an annotation in the step's code, whose line is At.
	Name  string             `json:"name,omitempty"`
	Count int                `json:"count,omitempty"`
	At    *memory.SourceLine `json:"at,omitempty"`
	// From is the current annotation and To the suggested one, as returned by [logical.Annotation.String].
	// To is "none" to remove an annotation from the code.
	From string `json:"from"`
	To   string `json:"to"`
	// Removes are the lines of the collectives that the change removes, the most bytes first.
	// Layers that differ only in numbers are one line.
	Removes []Line `json:"removes"`
	// Adds are the lines of the collectives that the change adds.
	Adds []Line `json:"adds,omitempty"`
	// After contains the figures of the step with To.
	After AnnotationFigures `json:"after"`
}

// AnnotationFigures contains the figures by which annotations are compared: the bytes sent, the
// time and the memory of a step on one core.
type AnnotationFigures struct {
	// Sent is the sum of [Collective].Moved over all collectives.
	Sent int64 `json:"sent_bytes"`
	// Seconds is the predicted time; 0 for devices without a prediction.
	Seconds float64 `json:"seconds,omitempty"`
	// Peak is the memory in use at the peak of the schedule.
	Peak int64 `json:"peak_bytes"`
}

// subject returns the annotated names, or the line of the annotation, such as "model.go:12".
func (m AnnotationSuggestion) subject() string {
	switch {
	case m.At != nil:
		return m.At.String()
	case m.Count > 1:
		return fmt.Sprintf("%s (%d)", m.Name, m.Count)
	}
	return m.Name
}

// AnnotationOptions configure [SuggestAnnotations].
type AnnotationOptions struct {
	// Target describes the devices that Try compiles for. The default is the target of the step.
	// Times are predicted for TPU slices only. An annotation with which the step does not fit into a
	// core's memory is not suggested, if the size of the memory is known.
	Target Target
	// Most is the maximum number of annotations to compile. The default is 24.
	Most int
	// Try compiles a module and returns the optimized program, or a program that is only
	// partitioned and fused. It is called from one goroutine. The default is
	// CompileVariant of the step.
	Try func(ctx context.Context, m *spmd.Module) (pjrt.Program, error)
	// Progress, if not nil, is called after each compilation with the number of annotations tried so
	// far and the number of annotations to try.
	Progress func(tried, of int)
}

// SuggestAnnotations searches for annotations that make a step faster. It changes the annotation of
// one variable, argument or value of the step at a time, starting near the largest collectives, and
// compiles the step with each change. It returns the changes that remove a collective over the
// logical devices and reduce the predicted time. If no time is predicted, it returns the changes
// that reduce the bytes sent without additional operations. Variables whose names differ only in
// numbers change together.
//
// SuggestAnnotations compiles the step up to Most+1 times and does not change the step. It must be
// called before the first run of the step, which deletes the trace that SuggestAnnotations uses.
// Without the trace, it returns an error of class FailedPrecondition. It also returns the error of
// compiling the unchanged step. Annotations that the compiler rejects are only counted. If ctx
// ends, SuggestAnnotations returns the suggestions so far and the error of ctx.
func SuggestAnnotations(ctx context.Context, step CompiledStep, o AnnotationOptions) (*AnnotationSuggestions, error) {
	if o.Target.Name == "" {
		o.Target = TargetOf(step.Compiled().Target)
	}
	if o.Try == nil {
		o.Try = step.CompileVariant
	}
	m := step.Compiled().Module
	splits, err := m.Annotations()
	if err != nil {
		return nil, err
	}
	mesh, err := (&Report{Replicas: m.Mesh.Size() / m.LogicalMesh.Size(), LogicalDevices: m.LogicalMesh.Size()}).meshOf(m)
	if err != nil {
		return nil, err
	}
	s := &annotationSearch{o: o, mesh: mesh}
	if s.now, err = s.try(ctx, m); err != nil {
		return nil, err
	}
	out, known := &AnnotationSuggestions{Now: s.now.AnnotationFigures, All: []AnnotationSuggestion{}},
		map[string]bool{string(m.Text): true}
	trials := s.trials(splits, m.LogicalMesh)
	most := min(cmp.Or(o.Most, 24), len(trials))
	for k := range trials {
		if ctx.Err() != nil || out.Tried == most {
			out.Left = len(trials) - k
			break
		}
		t := &trials[k]
		variant, err := m.WithAnnotation(t.splits, t.to)
		if err == nil {
			if known[string(variant.Text)] {
				continue // the same change in another form
			}
			known[string(variant.Text)] = true
			t.after, err = s.try(ctx, variant)
		}
		if err != nil && ctx.Err() != nil {
			out.Left = len(trials) - k
			break
		}
		if out.Tried++; err != nil {
			out.Refused++
		}
		if o.Progress != nil {
			o.Progress(out.Tried, most)
		}
	}
	out.All = append(out.All, s.best(trials)...)
	if ctx.Err() != nil {
		return out, &errkind.Fault{Op: "report: suggest annotations", Subject: m.Name, Err: context.Cause(ctx)}
	}
	return out, nil
}

type annotationSearch struct {
	o    AnnotationOptions
	mesh sharding.Mesh
	now  *annotationCost
}

// trial is an annotation to compile the step with. It replaces the current annotation, which all
// splits have in common.
type trial struct {
	splits []spmd.AnnotationSite
	to     logical.Annotation
	after  *annotationCost // nil if it was not compiled, or rejected
}

type annotationCost struct {
	AnnotationFigures
	flops float64
	at    map[originKey]*Collective
}

// originKey identifies the collectives of one kind and one origin. Layers that differ only in their
// number have the same key.
type originKey struct {
	kind, axis string
	origin     ir.Origin
}

// originPattern returns the origin with each number in the name of its layer replaced by a star.
func originPattern(o *ir.Origin) ir.Origin {
	at := *o
	at.Layer = pattern(strings.TrimPrefix(o.Layer, "/"))
	return at
}

func (s *annotationSearch) try(ctx context.Context, m *spmd.Module) (*annotationCost, error) {
	program, err := s.o.Try(ctx, m)
	if err != nil {
		return nil, err
	}
	optimized, err := hlo.Parse(program, m)
	if err != nil {
		return nil, err
	}
	out := &annotationCost{at: map[originKey]*Collective{}}
	all := countCollectives(optimized, s.mesh)
	for _, c := range all.byKey {
		out.Sent = sum64(out.Sent, c.Moved)
	}
	for key, c := range all.byLine {
		if key.origin == nil || key.axis == spmd.ReplicaAxis {
			continue // collectives between replicas do not depend on splits
		}
		at := originKey{key.kind, key.axis, originPattern(key.origin)}
		if out.at[at] == nil {
			out.at[at] = &Collective{Kind: c.Kind, Axis: c.Axis, GroupSize: c.GroupSize}
		}
		out.at[at].join(*c)
	}
	e := cost.Simulate(optimized, s.o.Target.Name, 0, 0, nil)
	if len(e.Operations) == 0 {
		return nil, &errkind.Fault{Op: "report: suggest annotations", Match: hlo.ErrProgram,
			Reason: "the program is empty or too large"}
	}
	if out.flops, out.Peak = e.FLOPs, e.PeakBytes; e.Prediction != nil {
		out.Seconds = e.Prediction.Seconds
	}
	return out, nil
}

func (p *annotationCost) sortedKeys() (keys []originKey) {
	for key := range p.at {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b originKey) int {
		return cmp.Or(cmp.Compare(p.at[b].Moved, p.at[a].Moved), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	return keys
}

// missingFrom returns the collectives that t contains and o does not contain.
func (t *annotationCost) missingFrom(o *annotationCost) (all []Line) {
	for _, key := range t.sortedKeys() {
		if o.at[key] == nil {
			all = append(all, Line{SourceLine: *memory.NewSourceLine(&key.origin), Collectives: []Collective{*t.at[key]}})
		}
	}
	return all
}

// trials returns the annotations to try. It starts with the annotations nearest to the largest
// collectives.
func (s *annotationSearch) trials(splits []spmd.AnnotationSite, mesh sharding.Mesh) (all []trial) {
	type group struct {
		splits   []spmd.AnnotationSite
		distance int
	}
	var groups []group
	at, keys := map[string]int{}, s.now.sortedKeys()
	if len(keys) == 0 {
		return nil
	}
	for _, split := range splits {
		distance := distanceTo(split, keys)
		if split.Name != "" && !split.Annotation.IsSharded(mesh) {
			distance += 2 * len(keys) // most replicated arguments are replicated for a good reason
		}
		key := fmt.Sprint(pattern(split.Name), split.Dims, split.Annotation)
		if n, known := at[key]; known && split.Name != "" {
			groups[n].splits, groups[n].distance = append(groups[n].splits, split), min(groups[n].distance, distance)
			continue
		}
		at[key] = len(groups)
		groups = append(groups, group{[]spmd.AnnotationSite{split}, distance})
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(a.distance, b.distance) })
	for _, g := range groups {
		for _, to := range alternatives(g.splits[0], mesh) {
			all = append(all, trial{splits: g.splits, to: to})
		}
	}
	return all
}

// distanceTo returns the distance of an annotation from the nearest collective. It is smallest for
// annotations in the layer of a collective, followed by annotations in the same line, in the same
// function and elsewhere. Within each of these four groups, annotations of larger collectives have
// smaller distances.
func distanceTo(s spmd.AnnotationSite, keys []originKey) int {
	at, least := originPattern(s.Origin), 3*len(keys)
	for n, key := range keys {
		switch {
		case at.Layer == key.origin.Layer && at.Layer != "":
			least = min(least, n)
		case at.File != key.origin.File:
		case at.Line == key.origin.Line:
			least = min(least, len(keys)+n)
		case at.Function == key.origin.Function:
			least = min(least, 2*len(keys)+n)
		}
	}
	return least
}

// best selects the suggestions from the trials. For each collective that can be removed, it returns
// the trial with the lowest cost.
func (s *annotationSearch) best(trials []trial) (all []AnnotationSuggestion) {
	var found []*trial
	for k := range trials {
		t := &trials[k]
		if t.after != nil && t.after.isBetterThan(s.now) && (s.o.Target.HBMBytes == 0 ||
			t.after.Peak <= s.o.Target.HBMBytes) {
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b *trial) int {
		return cmp.Or(cmp.Compare(a.after.cost(), b.after.cost()), cmp.Compare(a.after.Peak, b.after.Peak))
	})
	gone := map[originKey]bool{}
	for _, t := range found {
		m, fresh := t.suggestion(), false
		for _, key := range s.now.sortedKeys() {
			if t.after.at[key] == nil {
				fresh = fresh || !gone[key]
				gone[key] = true
			}
		}
		m.Removes, m.Adds = s.now.missingFrom(t.after), t.after.missingFrom(s.now)
		if fresh {
			all = append(all, m)
		}
	}
	return all
}

// isBetterThan reports whether step t is faster than step o. If no times are predicted, it reports
// whether t sends fewer bytes than o and executes at most 2 % more operations.
func (t *annotationCost) isBetterThan(o *annotationCost) bool {
	return t.cost() < o.cost() && (t.Seconds > 0 || t.flops <= 1.02*o.flops)
}

// cost returns the figure that suggestions minimize: the predicted seconds, or the bytes sent if no
// time is predicted.
func (f AnnotationFigures) cost() float64 { return cmp.Or(f.Seconds, float64(f.Sent)) }

func (t *trial) suggestion() AnnotationSuggestion {
	first := t.splits[0]
	m := AnnotationSuggestion{Name: first.Name, From: first.Annotation.String(), To: t.to.String(),
		After: t.after.AnnotationFigures}
	for _, s := range t.splits[1:] {
		m.Name = commonName(m.Name, s.Name)
	}
	if first.Name == "" {
		m.At = memory.NewSourceLine(first.Origin)
		m.At.Pass = ""
	} else {
		m.Count = len(t.splits)
	}
	return m
}

// alternatives returns the annotations to try instead of an existing annotation. One mesh axis is
// moved to another dimension or removed. A value in the step's code can also have no annotation.
func alternatives(s spmd.AnnotationSite, mesh sharding.Mesh) (all []logical.Annotation) {
	add := func(a logical.Annotation) {
		if !a.Equal(s.Annotation) && a.ValidateOn(mesh, "", s.Dims) == nil && !slices.ContainsFunc(all, a.Equal) {
			all = append(all, a)
		}
	}
	if s.Name == "" {
		add(logical.Annotation{})
	}
	whole := s.Annotation.Kind() != logical.KindSplit
	if parts := s.Annotation.Parts(); parts != nil || whole && mesh.Rank() == 1 &&
		mesh.Axes()[0].Name == logical.LogicalAxis {
		for to := range s.Dims {
			if whole {
				parts = slices.Repeat([]int{1}, len(s.Dims))
				parts[to] = mesh.Size()
				add(logical.SplitInto(parts...))
			}
			for from := range parts {
				if !whole && from != to && parts[from] > 1 {
					there := slices.Clone(parts)
					there[to], there[from] = there[to]*there[from], 1
					add(logical.SplitInto(there...))
				}
			}
		}
	} else {
		for _, axis := range mesh.Axes() {
			for to := -1; to < len(s.Dims) && axis.Size > 1; to++ {
				add(moveAxis(s.Annotation, len(s.Dims), axis.Name, to))
			}
		}
	}
	add(logical.Replicated())
	return all
}

// moveAxis returns the annotation with an axis moved to the dimension with the index to. If to is
// -1, the axis is removed.
func moveAxis(a logical.Annotation, rank int, axis string, to int) logical.Annotation {
	dims := a.Axes()
	if dims == nil {
		dims = make([][]string, rank)
	}
	names, some := make([]string, rank), false
	for k := range dims {
		dims[k] = slices.DeleteFunc(dims[k], func(name string) bool { return name == axis })
		if k == to {
			dims[k] = append(dims[k], axis)
		}
		names[k] = strings.Join(dims[k], "+")
		some = some || names[k] != ""
	}
	if !some {
		return logical.Replicated()
	}
	return logical.SplitOverAxes(names...)
}

// suggestionSide contains the collectives that a suggestion removes, with Sign "-", or adds, with
// Sign "+".
type suggestionSide struct {
	Sign  string
	Lines []Line
}

func (m AnnotationSuggestion) sides() []suggestionSide {
	return []suggestionSide{{"-", m.Removes}, {"+", m.Adds}}
}

func (m *AnnotationSuggestions) summary() string {
	text := fmt.Sprintf("%d tried", m.Tried)
	if m.Refused > 0 {
		text += fmt.Sprintf(", %d of them rejected by the compiler", m.Refused)
	}
	if m.Left > 0 {
		text += fmt.Sprintf(", %d left", m.Left)
	}
	if len(m.All) == 0 {
		text += "; none removes a collective over the logical devices and is better"
	}
	return text
}
