package gomlx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/internal/misspelt"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// A rule that reaches no variable is a split that was asked for and would be dropped. GoMLX's programs
// come one at a time, so it can be told only of the variables so far: of the first program that takes
// variables and data, such as a training step, which has the whole model. What a later program may
// still bring is not refused but noted, unless the rule is Required or nothing at all is reached.

// ruleUse records which rules have reached a variable. It is safe for concurrent use.
type ruleUse struct {
	mu      sync.Mutex
	reached []bool
	told    bool
	// batch and split are set once it was noted that no data is split, and that variables are not
	// split as rules say.
	batch, split bool
}

// validate refuses rules that cannot be meant on a mesh.
func (o Options) validate(mesh sharding.Mesh) error {
	if err := (lowering.Options{Precision: o.Precision, Random: o.Random}).Check(); err != nil {
		return err
	}
	err := o.Rules.Validate(mesh)
	if of, ok := err.(*RuleError); ok {
		of.File = o.RulesName
	}
	return err
}

// checkRules reports, of the first program that takes variables and data, the rules that have reached no
// variable so far.
func (b *Backend) checkRules(p *lowering.Program) error {
	rules, u := b.opts.Rules, &b.rules
	if len(rules) == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told {
		return nil
	}
	if u.reached == nil {
		u.reached = make([]bool, len(rules))
	}
	var paths []string
	data, model := false, false
	for i, name := range p.ParameterNames {
		if !isVariable(name) {
			data = true
			continue
		}
		dims := p.Parameters[i].Dimensions
		model = model || len(dims) > 0
		paths = append(paths, name)
		for k, r := range rules {
			u.reached[k] = u.reached[k] || r.Reaches(name, dims)
		}
	}
	if !data || !model {
		return nil
	}
	none, must := !slices.Contains(u.reached, true), slices.ContainsFunc(rules, func(r Rule) bool { return !r.Optional })
	if none && must {
		return &RuleError{File: b.opts.RulesName, Rule: -1, Program: p.Name, Reason: "no rule reaches a variable: " + b.unreached(0, paths),
			Hint: "correct the patterns, or set optional in rules that may match nothing"}
	}
	for i, r := range rules {
		if r.Required && !u.reached[i] {
			return &RuleError{File: b.opts.RulesName, Rule: i, Text: r.String(), Program: p.Name, Reason: b.unreached(i, paths),
				Hint: "correct the pattern, or leave required out"}
		}
	}
	u.told = true
	if none {
		b.note(fmt.Sprintf("no rule of %s reaches a variable of program %q: each device has all of them whole", b.rulesName(), p.Name))
	}
	for i, r := range rules {
		if !r.Optional && !u.reached[i] {
			b.note(fmt.Sprintf("rule %d of %s (%s) reaches no variable of program %q or of one before it: %s; set optional if it may match nothing",
				i, b.rulesName(), r, p.Name, b.unreached(i, paths)))
		}
	}
	return nil
}

// noteWhole notes, once each, that no data of a program with variables is split over the replicas, which
// then do the same work, and that variables are not split as the rules say.
func (b *Backend) noteWhole(p *lowering.Program, places []Placement) {
	u := &b.rules
	u.mu.Lock()
	defer u.mu.Unlock()
	var whole, parts, unsplit []string
	model := false
	for i, name := range p.ParameterNames {
		model = model || isVariable(name) && len(p.Parameters[i].Dimensions) > 0
		switch {
		case isVariable(name) && places[i].Whole != "" && len(places[i].Rules) > 0:
			unsplit = append(unsplit, fmt.Sprintf("%s (%s)", name, places[i].Whole))
		case isVariable(name):
		case places[i].Whole != "":
			whole = append(whole, fmt.Sprintf("%s (%s)", name, places[i].Whole))
		case !places[i].Spec.IsReplicated():
			parts = append(parts, name)
		}
	}
	if model && len(whole) > 0 && len(parts) == 0 && !u.batch {
		u.batch = true
		b.note(fmt.Sprintf("program %q: every replica computes the whole batch: %s; give batches that the number of replicas divides. Said once; explain=1 says it of each program",
			p.Name, few(whole)))
	}
	if len(unsplit) > 0 && !u.split {
		u.split = true
		b.note(fmt.Sprintf("program %q: not split as the rules say: %s; change the rules, or the sizes. Said once; explain=1 says it of each program", p.Name, few(unsplit)))
	}
}

// few returns some of many texts.
func few(all []string) string {
	const most = 3
	if n := len(all); n > most {
		all = append(slices.Clone(all[:most]), fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(all, ", ")
}

// noteIdle notes the axes of several devices that no rule uses, as far as nothing else could: every
// device of such an axis does the same work.
func (b *Backend) noteIdle() {
	for _, axis := range b.logical.Axes() {
		if axis.Size > 1 && !b.opts.Rules.Uses(axis.Name) {
			b.note(fmt.Sprintf("no rule splits variables over the axis %s, so its %d devices do the same work: give rules=megatron or rules=FILE.json, or leave the axis out",
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

// unreached says why a rule reaches no variable.
func (b *Backend) unreached(i int, paths []string) string {
	r := b.opts.Rules[i]
	var others []string
	for _, path := range paths {
		if r.names(path) {
			others = append(others, path)
		}
	}
	const most = 3
	if len(others) > 0 {
		what := fmt.Sprintf("it splits %d dimensions, and the variables of its name have others", r.Split.Rank())
		if len(r.Largest) > 0 {
			what = "the variables of its name are smaller than it says"
		}
		return what + ": " + strings.Join(others[:min(most, len(others))], ", ")
	}
	var near []string
	for _, k := range misspelt.Nearest(plain(r.Pattern), paths, most) {
		near = append(near, paths[k])
	}
	return fmt.Sprintf("%q matches none, the nearest are %s", r.Pattern, strings.Join(near, ", "))
}

// plain is a pattern's text without its operators.
func plain(pattern *regexp.Regexp) string { return misspelt.Plain(pattern.String()) }
