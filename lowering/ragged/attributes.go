package ragged

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gomlx/go-xla/stablehlo"
)

// opName is a statement's op without its dialect.
func opName(s *stablehlo.Statement) string {
	name := s.OpType.ToStableHLO()
	return name[strings.IndexByte(name, '.')+1:]
}

// attribute is the text of a statement's attribute, "" without it.
func attribute(s *stablehlo.Statement, key string) string {
	value, ok := s.Attributes[key]
	if !ok {
		return ""
	}
	if v, ok := value.(interface{ ToStableHLO() string }); ok {
		return v.ToStableHLO()
	}
	return fmt.Sprint(value)
}

var number = regexp.MustCompile(`-?\d+`)

func numbers(text string) (all []int) {
	for _, digits := range number.FindAllString(text, -1) {
		n, _ := strconv.Atoi(digits)
		all = append(all, n)
	}
	return all
}

// ints are the numbers of an attribute such as array<i64: 1, 2> or dense<[[0, 1]]> : type.
func ints(s *stablehlo.Statement, key string) []int {
	text := attribute(s, key)
	if at := strings.LastIndex(text, "> : "); at >= 0 {
		text = text[:at]
	}
	if _, list, ok := strings.Cut(text, ":"); ok {
		text = list
	}
	return numbers(text)
}

// field are the numbers of one field of a structured attribute: "name = [1, 2]" or "name = 1".
func field(s *stablehlo.Statement, key, name string) []int {
	_, rest, ok := strings.Cut(attribute(s, key), name+" = ")
	if !ok {
		return nil
	}
	if at := strings.IndexAny(rest, "\n>"); at >= 0 {
		rest = rest[:at]
	}
	if _, list, ok := strings.Cut(rest, "["); ok {
		rest, _, _ = strings.Cut(list, "]")
	}
	return numbers(rest)
}

// flag is the value of an attribute that is a number or a bool, as text.
func flag(s *stablehlo.Statement, key string) string {
	value, _, _ := strings.Cut(attribute(s, key), " ")
	return value
}
