package logical

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/strictjson"
)

// rulesFile is the JSON form of rules.
type rulesFile struct {
	Rules []ruleEntry `json:"rules"`
}

// ruleEntry is the JSON form of a rule: the pattern, and one of split, largest, state and replicate.
type ruleEntry struct {
	Variable  *string `json:"variable"`
	Split     any     `json:"split,omitempty"`
	Largest   *string `json:"largest,omitempty"`
	State     string  `json:"state,omitempty"`
	Replicate bool    `json:"replicate,omitempty"`
	Smallest  int     `json:"smallest,omitempty"`
	Optional  bool    `json:"optional,omitempty"`
	Required  bool    `json:"required,omitempty"`
}

// maxRulesFile bounds a file of rules.
const maxRulesFile = 4 << 20

// ReadRules reads rules from a JSON file; see [ParseRules]. Errors are [*RuleError]s with the file's
// name.
func ReadRules(path string) (Rules, error) {
	data, err := files.Read(path, maxRulesFile)
	if err != nil {
		return nil, &RuleError{File: path, Rule: -1, Reason: "the file cannot be read", Err: err,
			Hint: "name a JSON file, or one of the built-in sets: " + strings.Join(BuiltinNames(), ", ")}
	}
	rules, err := ParseRules(data)
	if of := (*RuleError)(nil); errors.As(err, &of) {
		of.File = path
	}
	return rules, err
}

// ParseRules reads rules in their JSON form:
//
//	{"rules": [
//	  {"variable": "/(query|key|value)/dense/weights$", "split": "-,logical"},
//	  {"variable": "/output/dense/weights$", "split": "logical,-", "required": true},
//	  {"variable": "/norm", "replicate": true, "optional": true},
//	  {"variable": "/embeddings$", "largest": "logical"},
//	  {"variable": "", "state": "parameters", "smallest": 65536}
//	]}
//
// "variable" is a regular expression that is searched for in the path. "split" has one entry for
// each dimension: - for a dimension that stays whole, an axis, or axes joined by +; see
// [ParseAnnotation]. A list of entries, ["", "logical"], is read as well. "largest" has one axis or
// several, joined by +, and "state" is the name of a [StateSharding]. The other fields are those of
// [Rule]. Unknown and repeated fields are errors; an error is a [*RuleError]. Axes are checked where
// the mesh is known, by [Rules.Validate].
func ParseRules(data []byte) (Rules, error) {
	wrong := func(rule int, err error, hint, format string, args ...any) error {
		return &RuleError{Rule: rule, Reason: fmt.Sprintf(format, args...), Err: err, Hint: hint}
	}
	const form = `write {"rules": [{"variable": "/dense/weights$", "split": "-,logical"}]}`
	var file rulesFile
	if err := strictjson.Decode(data, &file); err != nil {
		return nil, wrong(-1, err, form, "the JSON is not right")
	}
	if len(file.Rules) == 0 {
		return nil, wrong(-1, nil, form, "there are no rules")
	}
	var rules Rules
	for i, e := range file.Rules {
		r := Rule{Smallest: e.Smallest, Optional: e.Optional, Required: e.Required}
		if e.Variable == nil {
			return nil, wrong(i, nil, `give "variable", a regular expression for paths of variables`, "it names no variable")
		}
		pattern, err := regexp.Compile(*e.Variable)
		if err != nil {
			return nil, wrong(i, err, `write \\ in JSON for a \`, "%q is no regular expression", *e.Variable)
		}
		r.Pattern = pattern
		given := 0
		if e.Split != nil {
			given++
			if r.Annotation, err = splitOf(e.Split); err != nil {
				return nil, wrong(i, err, `write the axes of each dimension, as in "-,logical"`, "its split cannot be read")
			}
		}
		if e.Largest != nil {
			given++
			r.Largest = axesOf(*e.Largest)
		}
		if e.State != "" {
			given++
			if r.State, err = ParseStateSharding(e.State); err != nil {
				return nil, wrong(i, err, "", "its state is not right")
			}
		}
		if e.Replicate {
			given++
			r.Annotation = Replicated()
		}
		if given != 1 || e.Largest != nil && len(r.Largest) == 0 {
			return nil, wrong(i, nil, `give one of "split", "largest", "state" and "replicate"`, "%q has %d of the ways to place a variable", *e.Variable, given)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// MarshalJSON returns the form that [ParseRules] reads.
func (rules Rules) MarshalJSON() ([]byte, error) {
	file := rulesFile{Rules: []ruleEntry{}}
	for i, r := range rules {
		if r.Pattern == nil {
			return nil, &RuleError{Rule: i, Reason: "it has no pattern", Hint: "make it with logical.Match"}
		}
		pattern := r.Pattern.String()
		e := ruleEntry{Variable: &pattern, Smallest: r.Smallest, Optional: r.Optional, Required: r.Required}
		switch {
		case len(r.Largest) > 0:
			names := strings.Join(r.Largest, "+")
			e.Largest = &names
		case r.State != 0:
			e.State = r.State.String()
		case r.Annotation.Kind() == KindReplicate:
			e.Replicate = true
		case r.Annotation.axes == nil:
			return nil, &RuleError{Rule: i, Text: r.String(), Reason: "the JSON form has splits by names only", Hint: "name the axes, as in -,logical"}
		default:
			e.Split = r.Annotation.String()
		}
		file.Rules = append(file.Rules, e)
	}
	return json.Marshal(file)
}

// splitOf reads a split by names: its text, or a list of its entries.
func splitOf(value any) (Annotation, error) {
	switch value := value.(type) {
	case string:
		if a, err := ParseAnnotation(value); err != nil || a.axes != nil {
			return a, err
		}
	case []any:
		dims := make([]string, len(value))
		for i, entry := range value {
			text, ok := entry.(string)
			if !ok {
				return Annotation{}, fmt.Errorf("entry %d is no text: %v", i, entry)
			}
			dims[i] = text
		}
		return Over(dims...), nil
	}
	return Annotation{}, fmt.Errorf("%v names no axes", value)
}

// axesOf reads axes that + joins.
func axesOf(text string) []string {
	axes := Over(text).Axes()
	if len(axes) == 0 {
		return nil
	}
	return axes[0]
}
