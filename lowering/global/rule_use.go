package global

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
}

// validate refuses rules that cannot be meant on a mesh.
func (o Options) validate(mesh sharding.Mesh) error {
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
