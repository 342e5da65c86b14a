package conformance

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// This file parses lists of strategies, parameters in titles, and names of outputs.

// byStrategy returns a case for each strategy of g. If the outputs are grouped by strategy, each
// case has only the output of its strategy.
func byStrategy(c *caseRun, g golden) []golden {
	names := strings.FieldsFunc(strings.NewReplacer(" and ", ",", " / ", ",").Replace(g.Strategy),
		func(r rune) bool { return r == ',' })
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if len(names) < 2 {
		return []golden{g}
	}
	of := map[string]string{} // output key of each strategy
	for _, name := range names {
		for key := range g.outputs() {
			if namesStrategy(key, name) {
				of[name] = key
			}
		}
	}
	if len(of) > 0 && (len(of) != len(names) || len(of) != len(g.outputs())) {
		c.unmapped("outputs %v of the strategies %q", g.Outputs, names)
	}
	var all []golden
	for _, name := range names {
		one := g
		one.Strategy = name
		if key, ok := of[name]; ok {
			one.Outputs = g.outputs()[key]
		}
		all = append(all, one)
	}
	return all
}

var numberWords = []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight"}

// namesStrategy reports whether the key of an output denotes a strategy: by its name, its kind, or
// its number of replicas.
func namesStrategy(key, name string) bool {
	key = strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(key))
	if key == name {
		return true
	}
	m := strategyText.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return key == m[1] || key == m[1]+"-strategy"
	}
	for _, text := range []string{m[1], numberWords[min(n, len(numberWords)-1)], m[2], "n=" + m[2], m[1] + m[2],
		"n" + m[2]} {
		if key == text || key == text+"-replica" || key == text+"-replicas" {
			return true
		}
	}
	return n == 1 && strings.HasPrefix(key, "single")
}

var splitText = regexp.MustCompile(`\bbatch (?:of )?(\d+) over (\d+) replicas as ([\d, +]+)`)

// splitOf returns the replicas' parts of a batch that a title describes in words, such as "global
// batch 5 over 4 replicas as 2,2,1,0". The elements are 0.0, 1.0 and so on.
func splitOf(title string) (parts []any, ok bool) {
	m := splitText.FindStringSubmatch(title)
	if m == nil {
		return nil, false
	}
	next := 0
	for _, size := range regexp.MustCompile(`\d+`).FindAllString(m[3], -1) {
		n, _ := strconv.Atoi(size)
		part := []any{}
		for range n {
			part = append(part, jsonNumber(float64(next)))
			next++
		}
		parts = append(parts, part)
	}
	return parts, strconv.Itoa(next) == m[1] && strconv.Itoa(len(parts)) == m[2]
}

// reductionName is the parsed name of an output: "SUM", "MEAN_axis0" or "sum, axis None".
type reductionName struct {
	op   strategy.ReduceOp
	axes []int
	// axis reports whether the name contains an axis. If not, the axis of the case applies.
	axis bool
}

var reductionKey = regexp.MustCompile(
	`(?i)^(sum|mean)(?:_of_all)?(?:[_, ]+(no_axis|axis[_ ]?(none|-?\d+(?:[_,]\d+)*)))?$`)

func reductionOf(name string) (r reductionName, ok bool) {
	m := reductionKey.FindStringSubmatch(name)
	if m == nil {
		return r, false
	}
	r.op = strategy.Sum
	if strings.EqualFold(m[1], "mean") {
		r.op = strategy.Mean
	}
	r.axis = m[2] != ""
	for _, axis := range regexp.MustCompile(`-?\d+`).FindAllString(m[3], -1) {
		k, _ := strconv.Atoi(axis)
		r.axes = append(r.axes, k)
	}
	return r, true
}

// titleHas reports whether a title contains one of the phrases as whole words, regardless of case.
// The phrases may be regular expressions.
func titleHas(title string, phrases ...string) bool {
	for _, phrase := range phrases {
		if regexp.MustCompile(`(?i)(^|[^a-z0-9_])(` + phrase + `)($|[^a-z0-9_])`).MatchString(title) {
			return true
		}
	}
	return false
}

// says reports whether the message of a recorded error contains one of the texts. The message may
// describe the context of a call that the title omits.
func says(outputs any, texts ...string) bool {
	m, _ := outputs.(map[string]any)
	e, _ := m["error"].(map[string]any)
	message, _ := e["message"].(string)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
}

// Parts of TensorFlow's error messages that describe the context of a call.
const (
	saysReplica = "Method requires being in cross-replica context"
	saysOther   = "Mixing different tf.distribute.Strategy objects"
	saysOutside = `Need to be inside "with strategy.scope()"`
)
