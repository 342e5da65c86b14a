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

type rulesFile struct {
	Rules []ruleEntry `json:"rules"`
}

// ruleEntry is the JSON form of a Rule. Exactly one of Split, Largest, State and Replicate is set.
type ruleEntry struct {
	Variable    *string `json:"variable"`
	Split       any     `json:"split,omitempty"`
	Largest     *string `json:"largest,omitempty"`
	State       string  `json:"state,omitempty"`
	Replicate   bool    `json:"replicate,omitempty"`
	MinElements int     `json:"smallest,omitempty"`
	Optional    bool    `json:"optional,omitempty"`
	Required    bool    `json:"required,omitempty"`
}

// maxRulesFile is the maximum size of a rules file in bytes.
const maxRulesFile = 4 << 20

// ReadRules reads rules from a JSON file in the format of [ParseRules]. Errors are [*RuleError]
// values with the name of the file.
func ReadRules(path string) (Rules, error) {
	data, err := files.ReadFile(path, maxRulesFile)
	if err != nil {
		return nil, &RuleError{File: path, Rule: -1, Reason: "the file cannot be read", Err: err,
			Hint: "name a JSON file, or one of the built-in sets: " + strings.Join(BuiltinNames(), ", ")}
	}
	rules, err := ParseRules(data)
	if ruleErr := (*RuleError)(nil); errors.As(err, &ruleErr) {
		ruleErr.File = path
	}
	return rules, err
}

// ParseRules parses rules in their JSON form:
//
//	{"rules": [
//	  {"variable": "/(query|key|value)/dense/weights$", "split": "-,logical"},
//	  {"variable": "/output/dense/weights$", "split": "logical,-", "required": true},
//	  {"variable": "/norm", "replicate": true, "optional": true},
//	  {"variable": "/embeddings$", "largest": "logical"},
//	  {"variable": "", "state": "parameters", "smallest": 65536}
//	]}
//
// "variable" is the regular expression of [Rule.Pattern]. "split" is a split over named axes in the
// notation of [ParseAnnotation], or a list of its entries such as ["", "logical"]. "largest" is one
// axis, or several joined by "+". "state" is the name of a [StateSharding]. The other fields
// correspond to the fields of [Rule]. Unknown and repeated fields are errors. ParseRules does not
// know the mesh; [Rules.Validate] checks the axes. Errors are [*RuleError] values.
func ParseRules(data []byte) (Rules, error) {
	ruleError := func(rule int, err error, hint, format string, args ...any) error {
		return &RuleError{Rule: rule, Reason: fmt.Sprintf(format, args...), Err: err, Hint: hint}
	}
	const example = `write {"rules": [{"variable": "/dense/weights$", "split": "-,logical"}]}`
	var file rulesFile
	if err := strictjson.Decode(data, &file); err != nil {
		return nil, ruleError(-1, err, example, "the JSON is invalid")
	}
	if len(file.Rules) == 0 {
		return nil, ruleError(-1, nil, example, "there are no rules")
	}
	var rules Rules
	for i, e := range file.Rules {
		r := Rule{MinElements: e.MinElements, Optional: e.Optional, Required: e.Required}
		if e.Variable == nil {
			return nil, ruleError(i, nil, `set "variable" to a regular expression for paths of variables`,
				`"variable" is missing`)
		}
		pattern, err := regexp.Compile(*e.Variable)
		if err != nil {
			return nil, ruleError(i, err, `write \\ in JSON for a \`, "invalid regular expression %q", *e.Variable)
		}
		r.Pattern = pattern
		kinds := 0
		if e.Split != nil {
			kinds++
			if r.Annotation, err = parseSplit(e.Split); err != nil {
				return nil, ruleError(i, err, `write the axes of each dimension, as in "-,logical"`, "invalid split")
			}
		}
		if e.Largest != nil {
			kinds++
			r.Largest = parseAxes(*e.Largest)
		}
		if e.State != "" {
			kinds++
			if r.State, err = ParseStateSharding(e.State); err != nil {
				return nil, ruleError(i, err, "", "invalid state")
			}
		}
		if e.Replicate {
			kinds++
			r.Annotation = Replicated()
		}
		if kinds != 1 || e.Largest != nil && len(r.Largest) == 0 {
			return nil, ruleError(i, nil, "set exactly one of these fields",
				`found %d of "split", "largest", "state" and "replicate" for %q`, kinds, *e.Variable)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// MarshalJSON returns the rules in the format of [ParseRules]. Splits by number and assignments
// have no JSON form and are errors.
func (rules Rules) MarshalJSON() ([]byte, error) {
	file := rulesFile{Rules: []ruleEntry{}}
	for i, r := range rules {
		if r.Pattern == nil {
			return nil, &RuleError{Rule: i, Reason: "it has no pattern", Hint: "make it with logical.Match"}
		}
		pattern := r.Pattern.String()
		e := ruleEntry{Variable: &pattern, MinElements: r.MinElements, Optional: r.Optional, Required: r.Required}
		switch {
		case len(r.Largest) > 0:
			names := strings.Join(r.Largest, "+")
			e.Largest = &names
		case r.State != 0:
			e.State = r.State.String()
		case r.Annotation.Kind() == KindReplicate:
			e.Replicate = true
		case r.Annotation.axes == nil:
			return nil, &RuleError{Rule: i, Text: r.String(), Reason: "the JSON form has splits by names only",
				Hint: "name the axes, as in -,logical"}
		default:
			e.Split = r.Annotation.String()
		}
		file.Rules = append(file.Rules, e)
	}
	return json.Marshal(file)
}

// parseSplit parses a split over named axes from its text or from a list of its entries.
func parseSplit(value any) (Annotation, error) {
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
				return Annotation{}, fmt.Errorf("entry %d is not a string: %v", i, entry)
			}
			dims[i] = text
		}
		return SplitOverAxes(dims...), nil
	}
	return Annotation{}, fmt.Errorf("expected axis names, not %v", value)
}

func parseAxes(text string) []string {
	axes := SplitOverAxes(text).Axes()
	if len(axes) == 0 {
		return nil
	}
	return axes[0]
}
