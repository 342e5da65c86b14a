package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/strictjson"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Plan is one way to run a step on a slice of TPUs. The slices and maps of a Plan must not be modified.
type Plan struct {
	// Slice is the name of the slice, such as v5e:4x4.
	Slice string
	// Replicas is the number of replicas. Axes are the mesh axes of a replica's logical devices,
	// the slowest first, as in strategy.Options.
	Replicas int
	Axes     []sharding.Axis
	// Rules shard the variables and their training state. RulesName is a short name for the source
	// of the rules.
	Rules     logical.Rules
	RulesName string
	// Settings are the program's own options by name, such as remat=full. With package aot they are
	// flags of the program.
	Settings map[string]string
}

// Logical returns the number of logical devices of a replica.
func (p Plan) Logical() int {
	n := 1
	for _, axis := range p.Axes {
		n *= axis.Size
	}
	return n
}

// State returns how the training state is sharded over the replicas. It reads this from the first
// rule that applies to all variables.
func (p Plan) State() logical.StateSharding {
	for _, r := range p.Rules {
		if r.State != 0 && r.Pattern != nil && r.Pattern.String() == "" {
			return r.State
		}
	}
	return logical.ShardNothing
}

// String returns the plan in one line, such as "v5e:4x4: 4 x logical=4, shard-state=parameters,
// remat=full".
func (p Plan) String() string { return p.Slice + ": " + p.formatSettings() }

func (p Plan) formatSettings() string {
	parts := []string{fmt.Sprintf("%d x %s", p.Replicas, formatAxes(p.Axes))}
	if p.RulesName != "" {
		parts = append(parts, "rules="+p.RulesName)
	}
	if s := p.State(); s != logical.ShardNothing {
		parts = append(parts, "shard-state="+s.String())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Settings)) {
		parts = append(parts, name+"="+p.Settings[name])
	}
	return strings.Join(parts, ", ")
}

func formatAxes(axes []sharding.Axis) string {
	parts := make([]string, len(axes))
	for i, axis := range axes {
		parts[i] = fmt.Sprintf("%s=%d", axis.Name, axis.Size)
	}
	return cmp.Or(strings.Join(parts, ","), logical.LogicalAxis+"=1")
}

// formatVersion is the version of the JSON encoding. It increases when a field changes its meaning.
const formatVersion = 1

// planJSON is the JSON encoding of a plan. Rules is in the format of logical.ParseRules, and Axes
// in the format of sharding.ParseMesh.
type planJSON struct {
	Version   int               `json:"version"`
	Slice     string            `json:"slice"`
	Replicas  int               `json:"replicas"`
	Axes      string            `json:"axes"`
	Rules     json.RawMessage   `json:"rules,omitempty"`
	RulesName string            `json:"rules_name,omitempty"`
	Settings  map[string]string `json:"settings,omitempty"`
}

// MarshalJSON returns the encoding that [Parse] accepts. If a rule does not name its axes, the
// error is a [*logical.RuleError].
func (p Plan) MarshalJSON() ([]byte, error) {
	f := planJSON{Version: formatVersion, Slice: p.Slice, Replicas: p.Replicas, Axes: formatAxes(p.Axes),
		RulesName: p.RulesName, Settings: p.Settings}
	if len(p.Rules) > 0 {
		data, err := json.Marshal(p.Rules)
		if err != nil {
			return nil, err
		}
		var rules struct{ Rules json.RawMessage }
		if err := json.Unmarshal(data, &rules); err != nil {
			return nil, err
		}
		f.Rules = rules.Rules
	}
	return json.Marshal(f)
}

// UnmarshalJSON decodes a plan with [Parse].
func (p *Plan) UnmarshalJSON(data []byte) (err error) {
	*p, err = Parse(data)
	return err
}

// Parse decodes a plan from JSON:
//
//	{"version": 1, "slice": "v5e:4x4", "replicas": 4, "axes": "logical=4",
//	 "rules": [{"variable": "/up/dense/weights$", "split": "-,logical"},
//	           {"variable": "", "state": "parameters"}],
//	 "settings": {"remat": "full"}}
//
// The rules have the format of [logical.ParseRules], and the axes the format of
// [sharding.ParseMesh]. Errors are of kind ValueError.
func Parse(data []byte) (Plan, error) {
	wrong := func(err error, hint, format string, args ...any) (Plan, error) {
		return Plan{}, &errkind.Fault{Op: "plan: parse", Reason: fmt.Sprintf(format, args...), Err: err, Hint: hint,
			Class: errkind.ValueError}
	}
	var f planJSON
	if err := strictjson.Decode(data, &f); err != nil {
		return wrong(err, "give a file that a search for a plan wrote", "it is not a plan")
	}
	mesh, err := sharding.ParseMesh(f.Axes)
	switch {
	case f.Version != formatVersion:
		return wrong(nil, "search again with this version", "its version is %d, and this reads %d", f.Version, formatVersion)
	case f.Slice == "" || f.Replicas < 1:
		return wrong(nil, "give both", "it has slice %q and %d replicas", f.Slice, f.Replicas)
	case err != nil:
		return wrong(err, "write names and sizes, as in logical=4", "its axes cannot be read")
	case f.Replicas > math.MaxInt32/mesh.Size():
		return wrong(nil, "give a plan for existing devices", "%d replicas of %s", f.Replicas, f.Axes)
	}
	if _, err := logical.NewMesh(0, mesh.Axes()...); err != nil {
		return wrong(err, "", "its axes are not right")
	}
	p := Plan{Slice: f.Slice, Replicas: f.Replicas, Axes: mesh.Axes(), RulesName: f.RulesName, Settings: f.Settings}
	if len(f.Rules) > 0 {
		if p.Rules, err = logical.ParseRules(fmt.Appendf(nil, `{"rules": %s}`, f.Rules)); err != nil {
			return wrong(err, "", "its rules are not right")
		}
	}
	return p, nil
}

// Write writes the plan as indented JSON, which [Read] accepts.
func (p Plan) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(p)
}

// maxFileBytes limits the size of a plan file in bytes.
const maxFileBytes = 4 << 20

// Read reads a plan from a file; see [Parse].
func Read(path string) (Plan, error) {
	data, err := files.ReadFile(path, maxFileBytes)
	if err != nil {
		return Plan{}, err
	}
	p, err := Parse(data)
	if err != nil {
		return Plan{}, &errkind.Fault{Op: "plan: read", Subject: path, Err: err}
	}
	return p, nil
}
