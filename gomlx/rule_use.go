package gomlx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// A rule that matches no variable is a requested sharding that would be silently ignored. GoMLX
// compiles its programs one at a time, so the check only knows the variables of the programs so
// far. It runs at the first program with variables and data, such as a training step, which
// contains the complete model. A rule that has matched no variable by then causes a warning,
// because a later program may have its variable. It is an error if the rule is Required, or if no
// rule matches a variable at all. The rules of a built-in set are optional, because each is for the
// layers of some models, but at least one must match. Built-in sets shard matrices, so their check
// waits for the first program with a float matrix among its variables.

// ruleUsage records which rules have matched a variable, and which warnings were written. mu guards
// all fields.
type ruleUsage struct {
	logical.RuleUsage
	mu      sync.Mutex
	checked bool
	// Each of these fields is true after one of the warnings of warnUnsharded.
	warnedBatch, warnedUnsharded, warnedUnmatched bool
}

// validate returns an error for invalid options, including rules that are invalid on the mesh.
func (o Options) validate(mesh sharding.Mesh) error {
	if err := (lowering.Options{Precision: o.Precision, Random: o.Random}).Check(); err != nil {
		return err
	}
	err := o.Rules.Validate(mesh)
	for i, r := range o.Rules {
		kind := r.Annotation.Kind()
		switch {
		case err != nil:
		case kind == logical.KindNone && len(r.Largest) == 0 && r.State == 0:
			err = &logical.RuleError{Rule: i, Text: r.String(), Reason: "it splits nothing",
				Hint: `give the axes of each dimension, as logical.SplitOverAxes("", "logical")`}
		case kind == logical.KindAssign, r.Annotation.Parts() != nil:
			err = &logical.RuleError{Rule: i, Text: r.String(),
				Reason: "a program over the whole batch has no logical device of its own",
				Hint:   `name the axes, as logical.SplitOverAxes("", "logical")`}
		}
	}
	if of := (*logical.RuleError)(nil); errors.As(err, &of) {
		of.File = o.RulesName
	}
	return err
}

// checkRules checks the rules at the first program with variables and data. If rules have matched
// no variable so far, it returns an error or writes warnings.
func (b *Backend) checkRules(p *lowering.Program) error {
	rules, usage := b.opts.Rules, &b.ruleUsage
	if len(rules) == 0 {
		return nil
	}
	usage.mu.Lock()
	defer usage.mu.Unlock()
	if usage.checked {
		return nil
	}
	_, unknown := logical.BuiltinRules(b.opts.RulesName, b.logical)
	set := unknown == nil
	var variables []logical.Variable
	data, model, matrix := false, false, false
	for i, name := range p.ParameterNames[:numInputs(p)] {
		if !isVariable(name) {
			data = true
			continue
		}
		shape := p.Parameters[i]
		model = model || shape.Rank() > 0
		matrix = matrix || shape.Rank() > 1 && shape.DType.IsFloat()
		variables = append(variables, logical.Variable{Path: name, Shape: shape})
		usage.Record(rules, name, shape.Dimensions)
	}
	if !data || !model || set && usage.NoneUsed() && !matrix {
		return nil
	}
	missing := usage.Unused(rules)
	if usage.NoneUsed() && set {
		var names []string
		for _, v := range variables {
			names = append(names, v.Path)
		}
		return &logical.RuleError{File: b.opts.RulesName, Rule: -1, Program: p.Name,
			Reason: "no rule of the set reaches a variable; the variables are " + joinFirst(names, 6),
			Hint: "write rules for these names into a file, as rules=FILE.json, or leave rules out to keep whole variables " +
				"on each device"}
	}
	if usage.NoneUsed() && len(missing) > 0 {
		return &logical.RuleError{File: b.opts.RulesName, Rule: -1, Program: p.Name,
			Reason: fmt.Sprintf("no rule reaches a variable: rule %d %s", missing[0],
				rules[missing[0]].ExplainUnused(variables))}
	}
	for _, i := range missing {
		if rules[i].Required {
			return &logical.RuleError{File: b.opts.RulesName, Rule: i, Text: rules[i].String(), Program: p.Name,
				Reason: "it " + rules[i].ExplainUnused(variables)}
		}
	}
	usage.checked = true
	if usage.NoneUsed() {
		b.warn(fmt.Sprintf("no rule of %s reaches a variable of program %q: each device has all of them whole",
			b.rulesName(), p.Name))
	}
	for _, i := range missing {
		b.warn(fmt.Sprintf("rule %d of %s (%s) reaches no variable of program %q or of one before it: it %s", i,
			b.rulesName(), rules[i], p.Name, rules[i].ExplainUnused(variables)))
	}
	return nil
}

// warnUnsharded writes each of these warnings at most once:
//
//   - In a program with variables, no data is sharded over the replicas, so all replicas do the
//     same work.
//   - A variable is not sharded as the rules specify.
//   - A matrix is replicated because no rule of a built-in set matches its name.
func (b *Backend) warnUnsharded(p *lowering.Program, places []logical.ExplainedSpec) {
	usage := &b.ruleUsage
	usage.mu.Lock()
	defer usage.mu.Unlock()
	var unsharded, sharded, notAsRequested, unknown []string
	model := false
	for i, name := range p.ParameterNames[:numInputs(p)] {
		model = model || isVariable(name) && len(p.Parameters[i].Dimensions) > 0
		switch {
		case isVariable(name) && places[i].UnsplitReason != "" && len(places[i].Rules) > 0:
			notAsRequested = append(notAsRequested, fmt.Sprintf("%s (%s)", name, places[i].UnsplitReason))
		case isVariable(name):
			if len(places[i].Rules) == 0 && isLargeMatrix(p.Parameters[i]) && logical.OwnerOfState(name, nil) == "" {
				unknown = append(unknown, name)
			}
		case places[i].UnsplitReason != "":
			unsharded = append(unsharded, fmt.Sprintf("%s (%s)", name, places[i].UnsplitReason))
		case !places[i].Spec.IsReplicated():
			sharded = append(sharded, name)
		}
	}
	if model && len(unsharded) > 0 && len(sharded) == 0 {
		b.warnOnce(&usage.warnedBatch, p,
			"every replica computes the whole batch: %s; give batches that the number of replicas divides",
			joinFirst(unsharded, 3))
	}
	if len(notAsRequested) > 0 {
		b.warnOnce(&usage.warnedUnsharded, p, "not split as the rules say: %s; change the rules, or the sizes",
			joinFirst(notAsRequested, 3))
	}
	// Warn only for built-in sets: the author of a rule file knows its rules.
	set := b.opts.RulesName
	if len(unknown) > 0 && set != "" && !strings.HasSuffix(set, ".json") &&
		slices.ContainsFunc(b.logical.Axes(), b.isUsedByRules) {
		b.warnOnce(&usage.warnedUnmatched, p, "whole on each device, as no rule of %s is for their names: %s; the devices "+
			"of a replica do the same work with them: add rules for them by rules=FILE.json",
			set, joinFirst(unknown, 3))
	}
}

func (b *Backend) warnOnce(warned *bool, p *lowering.Program, format string, args ...any) {
	if !*warned {
		*warned = true
		b.warn(fmt.Sprintf("program %q: "+format+". Reported once; explain=1 reports it for each program",
			append([]any{p.Name}, args...)...))
	}
}

func (b *Backend) isUsedByRules(axis sharding.Axis) bool {
	return axis.Name != logical.ReplicaAxis && axis.Size > 1 && b.opts.Rules.UsesAxis(axis.Name)
}

// isLargeMatrix reports whether a variable is a matrix that is large enough for sharding by the
// built-in sets.
func isLargeMatrix(s shapes.Shape) bool { return s.Rank() > 1 && s.Size() >= 1024 }

// joinFirst joins the first limit texts with commas, and adds the number of omitted texts, such as
// "and 3 more".
func joinFirst(texts []string, limit int) string {
	if n := len(texts); n > limit {
		texts = append(slices.Clone(texts[:limit]), fmt.Sprintf("and %d more", n-limit))
	}
	return strings.Join(texts, ", ")
}

// warnIdleAxes warns about logical axes that no rule uses: the devices along such an axis do the
// same work.
func (b *Backend) warnIdleAxes() {
	for _, axis := range b.logical.Axes() {
		if axis.Size > 1 && !b.opts.Rules.UsesAxis(axis.Name) {
			b.warn(fmt.Sprintf("no rule splits variables over the axis %s, so its %d devices do the same work: give "+
				"rules=megatron or rules=FILE.json, or leave the axis out",
				axis.Name, axis.Size))
		}
	}
}

func (b *Backend) rulesName() string {
	if b.opts.RulesName == "" {
		return "the options"
	}
	return b.opts.RulesName
}
