package weights

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/gomlx/compute/dtypes"
)

// Variable describes a variable of a model.
type Variable struct {
	Path  string
	DType dtypes.DType
	// Shape are the dimensions, row-major. The first dimension of a stack is the number of layers.
	Shape []int
	// Optional means that the variable may keep its value if no tensor fills it.
	Optional bool
}

// PlanOptions configure [NewPlan].
type PlanOptions struct {
	// Create, if set, is the dtype of variables that the rules name and the model does not have.
	// The plan creates such variables with the shapes of the tensors. If Create is not set, they
	// are an [Unused] mismatch.
	Create dtypes.DType
}

// Plan specifies which ranges of tensors fill which ranges of variables. It is immutable.
type Plan struct {
	variables []variablePlan // variables that tensors fill
	tensors   map[string]Tensor
}

// variablePlan describes how tensors fill the boxes of a variable.
type variablePlan struct {
	Variable
	boxes []variableBox
}

// variableBox is a rectangular range of a variable's elements that one tensor fills.
type variableBox struct {
	tensor      string
	start, size []int
	view        stridedView // location of the box in the tensor
	add         float64
}

// NewPlan maps tensors to variables by rules. It checks that each tensor matches exactly one rule,
// that exactly one tensor fills each element of each variable, and that the shapes match after the
// steps of the rules are applied. variables may be in any order.
//
// Invalid rules are an error of kind ValueError. Mismatches are a [*PlanError], which lists all of
// them.
func NewPlan(tensors []Tensor, variables []Variable, rules Rules, opts PlanOptions) (*Plan, error) {
	patterns, err := rules.compilePatterns()
	if err != nil {
		return nil, err
	}
	m := &planner{rules: rules, patterns: patterns, ruleUsed: make([]bool, len(rules)), variables: map[string]*Variable{},
		opts: opts,
		plan: &Plan{tensors: map[string]Tensor{}}, candidates: map[string][]candidate{}, reported: map[string]bool{}}
	for i := range variables {
		v := variables[i]
		v.Shape = slices.Clone(v.Shape)
		m.variables[v.Path] = &v
		m.paths = append(m.paths, v.Path)
	}
	var mismatches []Mismatch
	for _, t := range tensors {
		mismatches = append(mismatches, m.matchRule(t)...)
	}
	for _, path := range m.paths {
		m.assignTensors(path)
	}
	for i, used := range m.ruleUsed {
		if r := rules[i]; !used && !r.Optional && !r.Ignore {
			mismatches = append(mismatches, Mismatch{Kind: UnmatchedRule,
				Detail: fmt.Sprintf("rule %d (%s) matches no tensor", i, r.Tensor),
				Hint:   "correct the pattern, or make the rule Optional"})
		}
	}
	if faults := append(m.mismatches, mismatches...); len(faults) > 0 {
		return nil, &PlanError{Mismatches: faults}
	}
	return m.plan, nil
}

// Variables returns the variables whose values are read from tensors. The variables that were
// passed to [NewPlan] are first, in the same order, followed by the variables that the plan
// creates.
func (p *Plan) Variables() []Variable {
	all := make([]Variable, len(p.variables))
	for i, v := range p.variables {
		all[i] = v.Variable
		all[i].Shape = slices.Clone(v.Shape)
	}
	return all
}

type planner struct {
	rules      Rules
	patterns   []*regexp.Regexp
	ruleUsed   []bool
	variables  map[string]*Variable
	opts       PlanOptions
	paths      []string // paths of variables
	candidates map[string][]candidate
	reported   map[string]bool // variables that a reported mismatch names
	mismatches []Mismatch
	plan       *Plan
}

// candidate is a tensor that a rule assigns to a variable or a part of it.
type candidate struct {
	tensor     Tensor
	target     Target
	view       stridedView
	stackIndex int // index in a stack, or -1
}

// matchRule finds the rule that matches a tensor and applies the rule's steps. It returns the
// mismatches, for example if no rule or several rules match, or if a step cannot be applied.
func (m *planner) matchRule(t Tensor) (faults []Mismatch) {
	rule := -1
	var groups []string
	for i, p := range m.patterns {
		g := p.FindStringSubmatch(t.Name)
		if g == nil {
			continue
		}
		if m.ruleUsed[i] = true; rule >= 0 {
			return []Mismatch{{Kind: Duplicate, Tensor: t.Name, Detail: fmt.Sprintf("rules %d (%s) and %d (%s) match it", rule,
				m.rules[rule].Tensor, i, m.rules[i].Tensor),
				Hint: "let one rule match it, with several targets"}}
		}
		rule, groups = i, g
	}
	if rule < 0 {
		return []Mismatch{{Kind: Unused, Tensor: t.Name, Detail: fmt.Sprintf("%s%v, which no rule matches", t.DType, t.Shape),
			Hint: fmt.Sprintf("add a rule for it, or {Tensor: %s, Ignore: true}", "`"+regexp.QuoteMeta(t.Name)+"`")}}
	}
	if m.rules[rule].Ignore {
		return nil
	}
	m.plan.tensors[t.Name] = t
	var uses []stridedView
	for _, target := range m.rules[rule].To {
		path := expandTemplate(target.Variable, groups)
		c := candidate{tensor: t, target: target, view: contiguousView(t.Shape), stackIndex: -1}
		fail := func(problem MismatchKind, hint, format string, args ...any) {
			m.reported[path] = true
			faults = append(faults, Mismatch{Kind: problem, Tensor: t.Name, Variable: path,
				Detail: fmt.Sprintf(format, args...), Hint: hint})
		}
		if target.Stack != "" {
			n, err := strconv.Atoi(expandTemplate(target.Stack, groups))
			if err != nil || n < 0 || n > maxLayers {
				fail(ShapeMismatch, "let Stack be a group of digits", "%q is no index of a stack of layers",
					expandTemplate(target.Stack, groups))
				continue
			}
			c.stackIndex = n
		}
		var err error
		for i, s := range target.Steps {
			if c.view, err = c.view.applyStep(s); err != nil {
				fail(ShapeMismatch, "correct the rule's steps", "the tensor is %v; step %d: %v", t.Shape, i, err)
				break
			}
		}
		if err != nil {
			continue
		}
		uses = append(uses, c.view)
		if m.variables[path] == nil && m.candidates[path] == nil {
			if m.opts.Create == dtypes.InvalidDType {
				fail(Unused, "ignore the tensor, or make a model that has the variable",
					"the model has no such variable; the tensor is %v", t.Shape)
				continue
			}
			m.paths = append(m.paths, path)
		}
		m.candidates[path] = append(m.candidates[path], c)
	}
	if len(faults) == 0 {
		if unused := unusedElements(t.Shape, uses); unused > 0 {
			faults = append(faults, Mismatch{Kind: Unused, Tensor: t.Name,
				Detail: fmt.Sprintf("%d elements of %v are in no slice of its rule", unused, t.Shape),
				Hint:   "add a target for them"})
		}
	}
	return faults
}

// unusedElements returns the number of elements of a tensor that none of the views selects.
func unusedElements(shape []int, uses []stridedView) int64 {
	total := int64(numElements(shape))
	var runs [][2]int64
	for _, v := range uses {
		if int64(numElements(v.shape())) == total {
			return 0
		}
		if runs = append(runs, v.elementRanges()...); len(runs) > maxRanges {
			return 0
		}
	}
	slices.SortFunc(runs, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	end := int64(0)
	for _, r := range runs {
		if r[1] > end {
			total -= r[1] - max(end, r[0])
			end = r[1]
		}
	}
	return total
}

// maxLayers limits the index in a stack.
const maxLayers = 1 << 20

// maxRanges limits the memory for finding unused elements.
const maxRanges = 1 << 20

// elementRanges returns the ranges of a tensor's elements that the view selects. If there are more
// than maxRanges ranges, it returns a slice of maxRanges+1 zero values instead.
func (v stridedView) elementRanges() [][2]int64 {
	var all []strideFactor
	for _, d := range v.dims {
		all = append(all, d...)
	}
	slices.SortFunc(all, func(a, b strideFactor) int { return cmp.Compare(b.stride, a.stride) })
	all = mergeFactors(all)
	last := all[len(all)-1]
	runs, length := [][2]int64{{v.offset, v.offset}}, int64(1)
	if last.stride == 1 {
		length, all = last.size, all[:len(all)-1]
	}
	for _, f := range all {
		if int64(len(runs))*f.size > maxRanges {
			return make([][2]int64, maxRanges+1)
		}
		next := make([][2]int64, 0, int64(len(runs))*f.size)
		for _, r := range runs {
			for i := range f.size {
				next = append(next, [2]int64{r[0] + i*f.stride, 0})
			}
		}
		runs = next
	}
	for i := range runs {
		runs[i][1] = runs[i][0] + length
	}
	return runs
}

// Tensors returns the names of the tensors whose values are read into variables, in the order of
// [Plan.Variables].
func (p *Plan) Tensors() (names []string) {
	seen := map[string]bool{}
	for _, v := range p.variables {
		for _, piece := range v.boxes {
			if !seen[piece.tensor] {
				seen[piece.tensor] = true
				names = append(names, piece.tensor)
			}
		}
	}
	return names
}
