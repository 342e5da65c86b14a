package report

import (
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// textStructure is how often the parts of a StableHLO text run: its functions, by their calls, and
// the bodies of its loops.
type textStructure struct {
	functions []textFunction // in the order of the text
	loops     []textLoop
	unknown   int // loops whose rounds are not known
}

type textFunction struct {
	name  string
	start int
	calls []textCall // of others to it
	times float64
}

type textCall struct {
	from int // the caller's place in the list
	at   int
}

// textLoop is the body of a loop.
type textLoop struct {
	start, end int
	rounds     float64
}

var (
	functionText = regexp.MustCompile(`func\.func\s+(?:public\s+|private\s+)?@("[^"]*"|[\w.$-]+)`)
	callText     = regexp.MustCompile(`call\s+@("[^"]*"|[\w.$-]+)`) // begins with what a search finds fast
	loopText     = regexp.MustCompile(`stablehlo\.while"?\(`)
	conditions   = regexp.MustCompile(`\bcond\s*\{`)
	compareText  = regexp.MustCompile(`stablehlo\.compare\s+(LT|LE|GT|GE|NE),\s*(%[\w#.$-]+),\s*(%[\w#.$-]+)`)
	compareOp    = regexp.MustCompile(`(?s)"stablehlo\.compare"\((%[\w#.$-]+),\s*(%[\w#.$-]+)\).{0,200}?comparison_direction (LT|LE|GT|GE|NE)`)
	returnText   = regexp.MustCompile(`"?stablehlo\.return"?[ (]([^:)\n]*)`)
	blockText    = regexp.MustCompile(`^\s*\^[\w$.-]+\(([^)]*)\)`)
)

// parseText reads the structure of a text. A text without functions is one.
func parseText(text string) *textStructure {
	s := &textStructure{}
	index := map[string]int{}
	for _, m := range functionText.FindAllStringSubmatchIndex(text, -1) {
		index[text[m[2]:m[3]]] = len(s.functions)
		s.functions = append(s.functions, textFunction{name: text[m[2]:m[3]], start: m[0]})
	}
	for _, m := range loopText.FindAllStringIndex(text, -1) {
		s.addLoop(text, m[0], m[1])
	}
	for _, m := range callText.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > 0 && text[m[0]-1] == '_' { // custom_call
			continue
		}
		if callee, ok := index[text[m[2]:m[3]]]; ok {
			s.functions[callee].calls = append(s.functions[callee].calls, textCall{s.function(m[0]), m[0]})
		}
	}
	for f := range s.functions {
		s.functions[f].times = s.runs(f, map[int]bool{})
	}
	return s
}

// function is the place of the function in which an offset lies, or -1.
func (s *textStructure) function(at int) int {
	return sort.Search(len(s.functions), func(i int) bool { return s.functions[i].start > at }) - 1
}

// runs is how often a function runs: once if nobody calls it.
func (s *textStructure) runs(f int, under map[int]bool) float64 {
	if f < 0 || len(s.functions[f].calls) == 0 || under[f] {
		return 1
	}
	if known := s.functions[f].times; known > 0 {
		return known
	}
	under[f] = true
	defer delete(under, f)
	total := 0.0
	for _, call := range s.functions[f].calls {
		total += s.runs(call.from, under) * s.inLoops(call.at)
	}
	s.functions[f].times = total
	return total
}

// inLoops is how often the loops around an offset run, of its function.
func (s *textStructure) inLoops(at int) float64 {
	times := 1.0
	for _, l := range s.loops {
		if l.start <= at && at < l.end {
			times *= l.rounds
		}
	}
	return times
}

// times is how often what stands at an offset runs.
func (s *textStructure) times(at int) float64 {
	times := s.inLoops(at)
	if f := s.function(at); f >= 0 {
		times *= s.functions[f].times
	}
	return times
}

// addLoop reads a loop, in the generic or the pretty form, whose operands begin at an offset.
func (s *textStructure) addLoop(text string, start, operands int) {
	end := closing(text, operands-1, '(', ')')
	if end < 0 {
		return
	}
	heads := text[operands:end]
	generic := strings.HasPrefix(text[start:], `stablehlo.while"`)
	at := strings.IndexByte(text[end:], '{')
	if !generic {
		m := conditions.FindStringIndex(text[end:])
		if m == nil {
			return
		}
		at = m[1] - 1
	}
	if at < 0 {
		return
	}
	at += end
	conditionEnd := closing(text, at, '{', '}')
	if conditionEnd < 0 {
		return
	}
	bodyStart := strings.IndexByte(text[conditionEnd+1:], '{')
	if bodyStart < 0 {
		return
	}
	bodyStart += conditionEnd + 1
	bodyEnd := closing(text, bodyStart, '{', '}')
	if bodyEnd < 0 {
		return
	}
	loop := loopReader{condition: text[at+1 : conditionEnd], body: text[bodyStart+1 : bodyEnd], before: s.before(text, start)}
	if generic {
		loop.initial = names(heads)
		loop.inCondition, loop.inBody = blockNames(loop.condition), blockNames(loop.body)
	} else {
		for _, pair := range strings.Split(heads, ",") {
			name, value, _ := strings.Cut(pair, "=")
			loop.inCondition = append(loop.inCondition, strings.TrimSpace(name))
			loop.initial = append(loop.initial, strings.TrimSpace(value))
		}
		loop.inBody = loop.inCondition
	}
	rounds, known := loop.rounds()
	if !known {
		rounds = 1
		s.unknown++
	}
	s.loops = append(s.loops, textLoop{bodyStart, bodyEnd, float64(rounds)})
}

// before is the text of a function up to an offset in it.
func (s *textStructure) before(text string, at int) string {
	if f := s.function(at); f >= 0 {
		return text[s.functions[f].start:at]
	}
	return text[:at]
}

// closing is the offset of the bracket that closes the one at an offset, or -1.
func closing(text string, open int, left, right byte) int {
	depth, quoted := 0, false
	for i := open; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == left:
			depth++
		case c == right:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// names are the names of values in a list, without their types.
func names(list string) []string {
	var out []string
	for _, item := range strings.Split(list, ",") {
		if name := strings.TrimSpace(item); strings.HasPrefix(name, "%") {
			name, _, _ = strings.Cut(name, ":")
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// blockNames are the names of the values that a region's block takes.
func blockNames(region string) []string {
	m := blockText.FindStringSubmatch(region)
	if m == nil {
		return nil
	}
	return names(m[1])
}

// loopReader finds out how often a loop runs.
type loopReader struct {
	condition, body, before string
	// initial are the first values of the state, inCondition and inBody the names of the state
	// there.
	initial, inCondition, inBody []string
}

func (l loopReader) rounds() (int, bool) {
	direction, left, right := "", "", ""
	if m := compareText.FindStringSubmatch(l.condition); m != nil {
		direction, left, right = m[1], m[2], m[3]
	} else if m := compareOp.FindStringSubmatch(l.condition); m != nil {
		left, right, direction = m[1], m[2], m[3]
	}
	k := slices.Index(l.inCondition, left)
	if k < 0 {
		left, right = right, left
		direction = map[string]string{"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}[direction]
		k = slices.Index(l.inCondition, left)
	}
	if k < 0 || k >= len(l.initial) || k >= len(l.inBody) {
		return 0, false
	}
	limit, ok := constant(right, l.condition, l.before)
	if !ok {
		if at := slices.Index(l.inCondition, right); at >= 0 && at < len(l.initial) && l.returned(at) == l.inBody[at] {
			limit, ok = constant(l.initial[at], "", l.before) // carried, and left as it is
		}
	}
	start, known := constant(l.initial[k], "", l.before)
	if !ok || !known {
		return 0, false
	}
	step, ok := l.step(l.inBody[k], l.returned(k))
	if !ok {
		return 0, false
	}
	return countRounds(direction, start, limit, step)
}

// returned is the name of an element of the state that the body returns.
func (l loopReader) returned(k int) string {
	all := returnText.FindAllStringSubmatch(l.body, -1)
	if len(all) == 0 {
		return ""
	}
	list := names(all[len(all)-1][1])
	if k >= len(list) {
		return ""
	}
	return list[k]
}

// step is by how much the body moves a counter.
func (l loopReader) step(counter, next string) (int64, bool) {
	if next == "" {
		return 0, false
	}
	op := regexp.MustCompile(regexp.QuoteMeta(next) + `\s*=\s*"?stablehlo\.(add|subtract)"?[ (]\s*(%[\w#.$-]+),\s*(%[\w#.$-]+)`)
	m := op.FindStringSubmatch(l.body)
	if m == nil {
		return 0, false
	}
	a, b := m[2], m[3]
	if a != counter && m[1] == "add" {
		a, b = b, a
	}
	n, ok := constant(b, l.body, l.before)
	if m[1] == "subtract" {
		n = -n
	}
	return n, ok && a == counter
}

// constant finds the integer that a name stands for, in the nearer of two texts.
func constant(name, near, far string) (int64, bool) {
	if name == "" {
		return 0, false
	}
	definition := regexp.MustCompile(regexp.QuoteMeta(name) + `\s*=\s*"?stablehlo\.constant"?[^\n]{0,40}?dense<(-?[0-9]{1,12})>\s*:\s*tensor<u?i[0-9]+>`)
	for _, text := range []string{near, far} {
		if all := definition.FindAllStringSubmatch(text, -1); len(all) > 0 {
			n, err := strconv.ParseInt(all[len(all)-1][1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
