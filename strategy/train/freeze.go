package train

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// freezer selects the variables that a step uses but does not train.
type freezer struct {
	patterns []*regexp.Regexp
	is       func(path string) bool
}

// freezer compiles the patterns that select frozen variables. It returns nil if the options freeze
// no variable.
func (o *Options) freezer() (*freezer, error) {
	if len(o.Freeze) == 0 && o.FreezeIf == nil {
		return nil, nil
	}
	f := &freezer{is: o.FreezeIf}
	for _, pattern := range o.Freeze {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, &errkind.Fault{Op: "train: Options.Freeze", Subject: fmt.Sprintf("pattern %q", pattern),
				Err:  err,
				Hint: "write a regular expression for the variables' paths", Class: errkind.ValueError}
		}
		f.patterns = append(f.patterns, compiled)
	}
	return f, nil
}

func (f *freezer) isFrozen(path string) bool {
	return f.is != nil && f.is(path) || slices.ContainsFunc(f.patterns,
		func(p *regexp.Regexp) bool { return p.MatchString(path) })
}

// freezeVariables marks the selected variables as frozen. It must run before the loss is built.
func (f *freezer) freezeVariables(p *stepBuilder) { p.freeze(f.isFrozen) }

// checkPatterns panics if a pattern of frozen variables matches no variable that the loss uses, or
// if all variables that the loss uses are frozen. It must run after the loss is built.
func (f *freezer) checkPatterns(p *stepBuilder) {
	all := p.userPaths(p.usedVariables())
	for _, pattern := range f.patterns {
		if !slices.ContainsFunc(all, pattern.MatchString) {
			panicInvalid("leave it out, or write it for one of these",
				"Options.Freeze: no trainable variable of the loss matches %q: they are %q", pattern, all)
		}
	}
	if f.is != nil && !slices.ContainsFunc(all, f.is) {
		panicInvalid("leave it out, or freeze one of these",
			"Options.FreezeIf freezes no trainable variable of the loss: they are %q", all)
	}
	if len(all) > 0 && !slices.ContainsFunc(all, func(path string) bool { return !f.isFrozen(path) }) {
		panicInvalid("leave one to train", "all trainable variables of the loss are frozen: %q", all)
	}
}
