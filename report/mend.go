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
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Mends are other annotations of a step without which collectives over its logical devices are not
// needed. A compiler has made the step with each of them: none is a guess.
type Mends struct {
	// Now is what the step takes as it is.
	Now MendFigures `json:"now"`
	// All are the mends, best first, each by itself and not together with another.
	All []Mend `json:"mends"`
	// Tried is the number of annotations that were compiled, Refused that of those among them that the
	// compiler refused, and Left that of those for which there was no time.
	Tried   int `json:"tried"`
	Refused int `json:"refused,omitempty"`
	Left    int `json:"left,omitempty"`
}

// Mend is one annotation to be written otherwise.
type Mend struct {
	// Name is that of the variable or argument that it lays out, or the pattern of Count names that differ
	// in numbers, with the state that an optimizer keeps of them; "" for an annotation in the step's code,
	// which At has the line of.
	Name  string `json:"name,omitempty"`
	Count int    `json:"count,omitempty"`
	At    *Line  `json:"at,omitempty"`
	// From is the annotation as it is, and To the better one, as [logical.Annotation.String] has them; To
	// is "none" for one in the code that is better left out.
	From string `json:"from"`
	To   string `json:"to"`
	// Removes are the lines with the collectives that are not there any more, most bytes first. Layers that
	// differ in numbers are together.
	Removes []Line `json:"removes"`
	// Adds are those that were not there before.
	Adds []Line `json:"adds,omitempty"`
	// After is what the step takes with To.
	After MendFigures `json:"after"`
}

// MendFigures are what a step takes of a core.
type MendFigures struct {
	// Sent is the sum of [Collective].Moved over all collectives.
	Sent int64 `json:"sent_bytes"`
	// Seconds is the predicted time; 0 for devices that none is predicted for.
	Seconds float64 `json:"seconds,omitempty"`
	// Peak is the memory in use at the peak of the schedule.
	Peak int64 `json:"peak_bytes"`
}

// Of is what is annotated: names, or "model.go:12".
func (m Mend) Of() string {
	switch {
	case m.At != nil:
		return m.At.String()
	case m.Count > 1:
		return fmt.Sprintf("%s (%d)", m.Name, m.Count)
	}
	return m.Name
}

// MendOptions say how mends are looked for.
type MendOptions struct {
	// Target is what Try compiles for. It predicts times for slices of TPUs, and a mend that does not fit
	// into a core's memory is none, if that is known.
	Target Target
	// Most is how many annotations are compiled at most; 0 stands for 24.
	Most int
	// Try compiles a module and returns the optimized program, or one that is split and fused and not
	// finished, such as a probe of pjrt/worker. It is called by one goroutine.
	Try func(ctx context.Context, m *spmd.Module) (pjrt.Program, error)
	// Told hears how many annotations of how many have been tried; nil hears nothing.
	Told func(tried, of int)
}

// FindMends lays out variables, arguments and annotated values of a module otherwise, one after the other,
// those of the lines and layers with the largest collectives first, and compiles each. What takes a
// collective over logical devices away and makes the step shorter by the prediction is a mend; where there
// is none, what makes it send less and compute no more. Annotations that differ only in the numbers of names are changed
// together. It takes the time of Most+1 compilations.
//
// It returns the error of compiling the module as it is; an annotation that the compiler refuses is
// counted. The error of ctx comes with the mends that were found before. A module whose traced step is not
// kept is refused with an error of class FailedPrecondition.
func FindMends(ctx context.Context, m *spmd.Module, o MendOptions) (*Mends, error) {
	splits, err := m.Splits()
	if err != nil {
		return nil, err
	}
	mesh, err := (&Report{Replicas: m.Mesh.Size() / m.Logical.Size(), LogicalDevices: m.Logical.Size()}).meshOf(m)
	if err != nil {
		return nil, err
	}
	s := &mender{o: o, mesh: mesh}
	s.machine, _ = newMachine(o.Target.Name)
	if s.now, err = s.try(ctx, m); err != nil {
		return nil, err
	}
	out, known := &Mends{Now: s.now.MendFigures, All: []Mend{}}, map[string]bool{string(m.Text): true}
	trials := s.trials(splits, m.Logical)
	most := min(cmp.Or(o.Most, 24), len(trials))
	for k := range trials {
		if ctx.Err() != nil || out.Tried == most {
			out.Left = len(trials) - k
			break
		}
		t := &trials[k]
		variant, err := m.With(t.splits, t.to)
		if err == nil {
			if known[string(variant.Text)] {
				continue // which says the same in other words
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
		if o.Told != nil {
			o.Told(out.Tried, most)
		}
	}
	out.All = append(out.All, s.best(trials)...)
	if ctx.Err() != nil {
		return out, &errkind.Fault{Op: "report: mends", Subject: m.Name, Err: context.Cause(ctx)}
	}
	return out, nil
}

// mender looks for mends of one module.
type mender struct {
	o       MendOptions
	mesh    sharding.Mesh
	machine *machine
	now     *mendCost
}

// trial is an annotation to try in the place of that of splits, which are alike.
type trial struct {
	splits []spmd.Split
	to     logical.Annotation
	after  *mendCost // nil if it was not tried, or refused
}

// mendCost is what a compiler made of a module.
type mendCost struct {
	MendFigures
	flops float64
	at    map[mendKey]*Collective
}

// mendKey is collectives of one kind that come from one place, whatever the number of its layer.
type mendKey struct {
	kind, axis string
	origin     ir.Origin
}

func placed(o *ir.Origin) ir.Origin {
	at := *o
	at.Layer = pattern(layerName(o))
	return at
}

// try compiles a module and reads what it takes.
func (s *mender) try(ctx context.Context, m *spmd.Module) (*mendCost, error) {
	program, err := s.o.Try(ctx, m)
	if err != nil {
		return nil, err
	}
	optimized, err := parseProgram(program)
	if err != nil {
		return nil, err
	}
	optimized.locate(m)
	out := &mendCost{at: map[mendKey]*Collective{}}
	all := optimized.counted(s.mesh, nil)
	for _, c := range all.byKey {
		out.Sent = sum64(out.Sent, c.Moved)
	}
	for key, c := range all.byLine {
		if key.origin == nil || key.axis == spmd.ReplicaAxis {
			continue // what replicas add up is no matter of splits
		}
		at := mendKey{key.kind, key.axis, placed(key.origin)}
		if out.at[at] == nil {
			out.at[at] = &Collective{Kind: c.Kind, Axis: c.Axis, GroupSize: c.GroupSize}
		}
		out.at[at].join(*c)
	}
	work, w := optimized.worked(Target{}, false, s.machine)
	if out.flops = work.flops; s.machine != nil {
		out.Seconds = work.times.seconds()
	}
	out.Peak, err = optimized.resident(w)
	return out, err
}

// places are the collectives of the module, those of most bytes first.
func (p *mendCost) places() (keys []mendKey) {
	for key := range p.at {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b mendKey) int {
		return cmp.Or(cmp.Compare(p.at[b].Moved, p.at[a].Moved), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	return keys
}

// without are the collectives that another step does not have.
func (t *mendCost) without(o *mendCost) (all []Line) {
	for _, key := range t.places() {
		if o.at[key] == nil {
			line := lineAt(&key.origin)
			line.Collectives = []Collective{*t.at[key]}
			all = append(all, line)
		}
	}
	return all
}

// trials are the annotations to try, the nearest to the largest collectives first.
func (s *mender) trials(splits []spmd.Split, mesh sharding.Mesh) (all []trial) {
	type group struct {
		splits []spmd.Split
		far    int
	}
	var groups []group
	at, keys := map[string]int{}, s.now.places()
	if len(keys) == 0 {
		return nil
	}
	for _, split := range splits {
		far := far(split, keys)
		if split.Name != "" && !split.Annotation.Divides(mesh) {
			far += 2 * len(keys) // most of them are rightly whole
		}
		key := fmt.Sprint(pattern(split.Name), split.Dims, split.Annotation)
		if n, known := at[key]; known && split.Name != "" {
			groups[n].splits, groups[n].far = append(groups[n].splits, split), min(groups[n].far, far)
			continue
		}
		at[key] = len(groups)
		groups = append(groups, group{[]spmd.Split{split}, far})
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(a.far, b.far) })
	for _, g := range groups {
		for _, to := range others(g.splits[0], mesh) {
			all = append(all, trial{splits: g.splits, to: to})
		}
	}
	return all
}

// far says how far a split is from the collectives: in the layer of one, in its line, in its function or
// elsewhere, and there by their order.
func far(s spmd.Split, keys []mendKey) int {
	at, least := placed(s.Origin), 3*len(keys)
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

// best are the mends among the trials: for each collective that is too many the best that takes it away.
func (s *mender) best(trials []trial) (mends []Mend) {
	var found []*trial
	for k := range trials {
		t := &trials[k]
		if t.after != nil && t.after.better(s.now) && (s.o.Target.HBMBytes == 0 || t.after.Peak <= s.o.Target.HBMBytes) {
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b *trial) int {
		return cmp.Or(cmp.Compare(a.after.cost(), b.after.cost()), cmp.Compare(a.after.Peak, b.after.Peak))
	})
	gone := map[mendKey]bool{}
	for _, t := range found {
		m, fresh := t.mend(), false
		for _, key := range s.now.places() {
			if t.after.at[key] == nil {
				fresh = fresh || !gone[key]
				gone[key] = true
			}
		}
		m.Removes, m.Adds = s.now.without(t.after), t.after.without(s.now)
		if fresh {
			mends = append(mends, m)
		}
	}
	return mends
}

// better reports whether a step is shorter, or sends less and computes no more where no time is known.
func (t *mendCost) better(than *mendCost) bool {
	return t.cost() < than.cost() && (t.Seconds > 0 || t.flops <= 1.02*than.flops)
}

// cost is what mends make less: seconds, or bytes where no time is known.
func (f MendFigures) cost() float64 { return cmp.Or(f.Seconds, float64(f.Sent)) }

func lineAt(o *ir.Origin) Line {
	return Line{File: o.File, Line: o.Line, Function: o.Function, Call: o.Call, Layer: layerName(o), Pass: o.Pass.String()}
}

// mend is the trial in words.
func (t *trial) mend() Mend {
	first := t.splits[0]
	m := Mend{Name: first.Name, From: first.Annotation.String(), To: t.to.String(), After: t.after.MendFigures}
	for _, s := range t.splits[1:] {
		m.Name = both(m.Name, s.Name)
	}
	if first.Name == "" {
		line := lineAt(first.Origin)
		line.Pass = ""
		m.At = &line
	} else {
		m.Count = len(t.splits)
	}
	return m
}

// others are the other ways to annotate what a split does: with one axis elsewhere, or nowhere, or, of a
// value, not at all.
func others(s spmd.Split, mesh sharding.Mesh) (all []logical.Annotation) {
	add := func(a logical.Annotation) {
		if !a.Equal(s.Annotation) && a.ValidateOn(mesh, "", s.Dims) == nil && !slices.ContainsFunc(all, a.Equal) {
			all = append(all, a)
		}
	}
	if s.Name == "" {
		add(logical.Annotation{})
	}
	whole := s.Annotation.Kind() != logical.KindSplit
	if parts := s.Annotation.Parts(); parts != nil || whole && mesh.Rank() == 1 && mesh.Axes()[0].Name == logical.AxisName {
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
				add(moved(s.Annotation, len(s.Dims), axis.Name, to))
			}
		}
	}
	add(logical.Replicated())
	return all
}

// moved is an annotation with an axis in dimension to alone, or in none for -1.
func moved(a logical.Annotation, rank int, axis string, to int) logical.Annotation {
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
	return logical.Over(names...)
}

// side is what a mend takes away, by the sign -, or adds, by +.
type side struct {
	Sign  string
	Lines []Line
}

func (m Mend) sides() []side { return []side{{"-", m.Removes}, {"+", m.Adds}} }

// Summary says how many annotations were, and what came of it.
func (m *Mends) Summary() string {
	text := fmt.Sprintf("%d tried", m.Tried)
	if m.Refused > 0 {
		text += fmt.Sprintf(", %d of them refused by the compiler", m.Refused)
	}
	if m.Left > 0 {
		text += fmt.Sprintf(", %d left", m.Left)
	}
	if len(m.All) == 0 {
		text += "; none takes a collective over the logical devices away and is better"
	}
	return text
}
