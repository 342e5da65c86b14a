package gomlx

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type config struct {
	text         string
	plugin       string // cpu, tpu, cuda, an absolute path, or empty
	devices      int
	logical      int
	axes         []sharding.Axis
	rules        string
	cacheDir     string
	explain      bool
	topology     string
	reportFile   string
	planFile     string
	followedPlan *plan.Plan // the plan to follow, read from the file plan
	precision    *lowering.Precision
}

// ErrConfig matches errors for an invalid configuration string.
var ErrConfig = errkind.New(errkind.Unknown, "gomlx: config")

func configError(config, option, reason, hint string, cause error) error {
	subject := strconv.Quote(config)
	if option != "" {
		subject += ": option " + option
	}
	return &errkind.Fault{Match: ErrConfig, Subject: subject, Reason: reason, Hint: hint, Err: cause,
		Class: errkind.KindOr(cause, errkind.ValueError)}
}

type configOption struct {
	name string
	// parse parses the option's value into a config. If the value is invalid, it returns a reason
	// and a hint.
	parse func(c *config, value string) (reason, hint string)
}

// configOptions lists all options, in the order of the documentation.
var configOptions = []configOption{
	{"plugin", func(c *config, value string) (string, string) {
		if !isPluginKind(value) && !filepath.IsAbs(value) {
			return fmt.Sprintf("%q is not a plugin", value), "give cpu, tpu, cuda or the absolute path of one"
		}
		c.plugin = value
		return "", ""
	}},
	{"devices", func(c *config, value string) (string, string) { return parseCount(&c.devices, value) }},
	{"logical", func(c *config, value string) (string, string) { return parseCount(&c.logical, value) }},
	{"axes", parseAxes},
	{"rules", func(c *config, value string) (string, string) {
		return parseText(&c.rules, value, "name a JSON file, or built-in sets: "+strings.Join(logical.BuiltinNames(), ", "))
	}},
	{"precision", func(c *config, value string) (string, string) {
		for _, p := range []lowering.Precision{lowering.PrecisionDefault, lowering.PrecisionHigh, lowering.PrecisionHighest} {
			if strings.EqualFold(p.String(), value) {
				c.precision = &p
				return "", ""
			}
		}
		return fmt.Sprintf("%q is not a precision", value), "give default, high or highest"
	}},
	{"cache", func(c *config, value string) (string, string) {
		return parseText(&c.cacheDir, value, "name a directory")
	}},
	{"explain", func(c *config, value string) (string, string) {
		c.explain = value == "1"
		if value != "0" && value != "1" {
			return fmt.Sprintf("%q is not 0 or 1", value), "give 1 or 0"
		}
		return "", ""
	}},
	{"topology", func(c *config, value string) (string, string) {
		c.topology = strings.TrimSpace(value)
		if cpuDevices(c.topology) > 0 {
			return "", ""
		}
		if err := system.CheckSliceName(c.topology); err != nil {
			return err.Error(), "give an accelerator type such as v5litepod-16, a shape such as v5e:4x4, several slices such " +
				"as 2x v5e-256, GPUs such as h100:8, or cpu:8"
		}
		return "", ""
	}},
	{"report", func(c *config, value string) (string, string) {
		return parseText(&c.reportFile, value, "name a file; one that ends in .html becomes a page, and any other JSON")
	}},
	{"plan", func(c *config, value string) (string, string) {
		return parseText(&c.planFile, value,
			"name a file: with topology= the best plan is written to it, and otherwise followed")
	}},
}

func isPluginKind(plugin string) bool { return slices.Contains([]string{"cpu", "tpu", "cuda"}, plugin) }

// parseText parses the value of an option that accepts any text except an empty one.
func parseText(dst *string, value, hintIfEmpty string) (reason, hint string) {
	*dst = value
	if value == "" {
		return "it is empty", hintIfEmpty
	}
	return "", ""
}

const maxDevices = 1 << 17

func parseCount(dst *int, value string) (reason, hint string) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxDevices {
		return fmt.Sprintf("%q is not a valid number of devices", value), fmt.Sprintf("give a number from 1 to %d",
			maxDevices)
	}
	*dst = n
	return "", ""
}

// parseAxes parses the names and sizes of axes, such as "model:4+sequence:2", which needs no
// quotes, or "model=4,sequence=2".
func parseAxes(c *config, value string) (reason, hint string) {
	mesh, err := sharding.ParseMesh(strings.NewReplacer(":", "=", "+", ",").Replace(value))
	switch {
	case errors.Is(err, sharding.ErrSyntax):
		err = fmt.Errorf("%q has no axes with sizes", value)
	case err == nil && mesh.Size() > maxDevices:
		err = fmt.Errorf("%v are more than %d devices", mesh, maxDevices)
	case err == nil:
		c.axes = mesh.Axes()
		_, err = logical.NewMesh(0, c.axes...)
	}
	if err != nil {
		return err.Error(), "give names and sizes as axes=model:4+sequence:2, the slowest axis first"
	}
	return "", ""
}

// cpuTopology matches a topology of CPU devices, such as "cpu:8".
var cpuTopology = regexp.MustCompile(`^cpu:([1-9][0-9]{0,3})$`)

// cpuDevices returns the number of devices of a CPU topology, or 0.
func cpuDevices(topology string) int {
	m := cpuTopology.FindStringSubmatch(topology)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // the expression limits the number of digits
	return n
}

// parseConfig parses a configuration string; see [NewFromConfig].
func parseConfig(text string) (*config, error) {
	c := &config{text: text}
	fail := func(option, reason, hint string) (*config, error) {
		return nil, configError(text, option, reason, hint, nil)
	}
	if strings.TrimSpace(text) == "" {
		return c, nil
	}
	const invalidText = "it has a control character, or bytes that are not UTF-8"
	if plain.EscapeLine(text) != text {
		return fail("", invalidText, "remove it")
	}
	seen := map[string]bool{}
	items, ok := splitItems(text)
	if !ok {
		return fail("", "a quoted value does not end", `end it with " before the next comma`)
	}
	for i, item := range items {
		name, value, hasValue := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		if i == 0 && !hasValue && (isPluginKind(name) || filepath.IsAbs(name)) {
			name, value, hasValue = "plugin", name, true
		}
		index := slices.IndexFunc(configOptions, func(o configOption) bool { return o.name == name })
		switch {
		case name == "" && !hasValue:
			return fail("", "there is nothing between two commas", "leave one out")
		case index < 0:
			var names []string
			for _, o := range configOptions {
				names = append(names, o.name)
			}
			return fail(strconv.Quote(name), "unknown option", "the options are "+strings.Join(names, ", ")+
				`; a value with a comma stands in double quotes, as cache="/a,b"`)
		case !hasValue:
			return fail(name, "it has no value", "write "+name+"=...")
		case seen[name]:
			return fail(name, "it is given twice", "give it once")
		}
		seen[name] = true
		value, err := unquote(value)
		if err != nil {
			return fail(name, err.Error(), `write \" and \\ within double quotes`)
		}
		if plain.EscapeLine(value) != value {
			return fail(name, invalidText, "remove it")
		}
		if reason, hint := configOptions[index].parse(c, value); reason != "" {
			return fail(name, reason, hint)
		}
	}
	return c, c.validate()
}

func (c *config) validate() error {
	fail := func(option, reason, hint string) error {
		return configError(c.text, option, reason, hint, nil)
	}
	size := Options{Axes: c.axes}.devicesPerReplica()
	switch {
	case c.axes != nil && c.logical != 0 && c.logical != size:
		return fail("axes", fmt.Sprintf("they make %d logical devices, and logical is %d", size, c.logical),
			"leave logical out")
	case c.reportFile != "" && c.topology == "":
		return fail("report", "only topology= writes a report", "add topology=v5e-16, or use explain=1")
	case c.planFile != "" && c.topology == "" && (c.rules != "" || c.logical != 0 || c.axes != nil):
		return fail("plan", "the plan specifies all shardings", "leave rules, logical and axes out")
	case c.planFile != "" && c.reportFile != "":
		return fail("plan", "a search compiles many programs, and a report is of one",
			"leave report out, and compile by the plan that is found")
	case c.planFile != "" && (cpuDevices(c.topology) > 0 || system.IsGPUName(c.topology)):
		return fail("plan", "times are predicted for TPUs only", "give a TPU slice such as topology=v5e:2x4")
	case c.topology != "" && c.cacheDir != "":
		return fail("cache", "with topology= no program is run or cached", "leave one of them out")
	case c.topology != "" && c.devices != 0:
		return fail("devices", "the topology specifies the number of devices", "leave devices out")
	case c.topology != "" && (c.plugin == "cuda" || c.plugin == "cpu" && cpuDevices(c.topology) == 0 ||
		c.plugin == "tpu" && cpuDevices(c.topology) > 0):
		return fail("plugin", c.plugin+" does not compile for "+c.topology,
			"leave it out, or give the path of a plugin that does")
	}
	return nil
}

// splitItems splits a string at the commas that are not within double quotes. It returns false if a
// closing quote is missing.
func splitItems(text string) (items []string, ok bool) {
	start, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"' && (quoted || i > 0 && text[i-1] == '='):
			quoted = !quoted
		case text[i] == ',' && !quoted:
			items, start = append(items, text[start:i]), i+1
		}
	}
	return append(items, text[start:]), !quoted
}

func unquote(value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	out, err := strconv.Unquote(value)
	if err != nil {
		return "", fmt.Errorf("%s has invalid quotes", value)
	}
	return out, nil
}
