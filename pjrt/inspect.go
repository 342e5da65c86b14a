package pjrt

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// This file looks for what is known to take the process down inside a compiler
// instead of giving an error. It is no verifier: what it lets pass, the compiler
// judges.

// mlirBytecodeMagic starts MLIR bytecode.
const mlirBytecodeMagic = "ML\xefR"

// maxNesting bounds brackets within brackets: MLIR's parser and passes recurse
// on the thread's stack.
const maxNesting = 256

// gspmdCalls are the custom calls that GSPMD reads as shardings.
var gspmdCalls = []string{"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}

// moduleFacts is what one pass over a module's text gathers.
type moduleFacts struct {
	sdy   bool
	gspmd string

	// The symbols that each function names, to find recursion.
	function string
	order    []string
	defined  map[string]bool
	refs     map[string][]string
}

// inspect answers a CompileError for MLIR that crashes compilers. In bytecode it
// sees only the mix of Shardy and GSPMD.
func inspect(code []byte) error {
	f := moduleFacts{defined: map[string]bool{}, refs: map[string][]string{}}
	if bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) {
		// Bytecode keeps its strings NUL-terminated in one section.
		f.sdy = bytes.Contains(code, []byte("\x00sdy\x00"))
		for _, name := range gspmdCalls {
			if bytes.Contains(code, []byte("\x00"+name+"\x00")) {
				f.gspmd = name
			}
		}
	} else if err := f.scan(string(code)); err != nil {
		return err
	}
	if f.sdy && f.gspmd != "" {
		return codeError("it has both Shardy (sdy.) and the GSPMD custom call @%s, which crashes the compiler: use sdy.sharding_constraint and sdy.manual_computation instead", f.gspmd)
	}
	return f.recursion()
}

func codeError(format string, args ...any) error {
	return &CompileError{"Program.Code", fmt.Sprintf(format, args...)}
}

// scan goes over the tokens of MLIR text.
func (f *moduleFacts) scan(s string) error {
	depth := 0
	before, last := "", "" // the two tokens before this one, without punctuation but "="
	for i := 0; i < len(s); {
		start := i
		switch c := s[i]; {
		case c == '"':
			text, n := scanString(s[i:])
			i += n
			f.quoted(text, before, last)
			before, last = last, "\""+text
		case c == '/' && strings.HasPrefix(s[i:], "//"):
			end := strings.IndexByte(s[i:], '\n')
			if end < 0 {
				return nil
			}
			i += end
		case c == '@':
			i++
			if i < len(s) && s[i] == '"' {
				_, n := scanString(s[i:])
				i += n
			}
			for i < len(s) && isName(s[i]) {
				i++
			}
			f.symbol(strings.Trim(s[start+1:i], "\""), before, last)
			before, last = last, s[start:i]
		case isName(c):
			for i < len(s) && isName(s[i]) {
				i++
			}
			word := s[start:i]
			if strings.HasPrefix(word, "sdy.") {
				f.sdy = true
			}
			if word == "tensor" && i < len(s) && s[i] == '<' {
				if err := checkDims(s[i+1:]); err != nil {
					return err
				}
			}
			before, last = last, word
		case c == '(' || c == '[' || c == '{' || c == '<':
			if depth++; depth > maxNesting {
				return codeError("brackets are nested more than %d deep at byte %d, which overflows the compiler's stack", maxNesting, i)
			}
			i++
		case c == ')' || c == ']' || c == '}' || c == '>':
			if depth > 0 && (c != '>' || i == 0 || s[i-1] != '-') {
				depth--
			}
			i++
		case c == '=':
			before, last = last, "="
			i++
		default:
			i++
		}
	}
	return nil
}

// quoted takes a string: an operation in generic form, or an attribute's value.
func (f *moduleFacts) quoted(text, before, last string) {
	switch {
	case last == "=" && before == "call_target_name":
		f.gspmdCall(text)
	case last == "=" && before == "sym_name":
		if f.function == "\"" {
			f.define(text)
		}
	case text == "func.func":
		f.function = "\"" // its name follows as sym_name
	case strings.HasPrefix(text, "sdy."):
		f.sdy = true
	}
}

// symbol takes an @name.
func (f *moduleFacts) symbol(name, before, last string) {
	switch {
	case last == "func.func" || before == "func.func" && (last == "private" || last == "public" || last == "nested"):
		f.define(name)
		return
	case strings.HasSuffix(last, "custom_call"):
		f.gspmdCall(name)
		return
	}
	if f.function != "" {
		f.refs[f.function] = append(f.refs[f.function], name)
	}
}

func (f *moduleFacts) define(name string) {
	f.function = name
	f.order = append(f.order, name)
	f.defined[name] = true
}

func (f *moduleFacts) gspmdCall(name string) {
	if slices.Contains(gspmdCalls, name) {
		f.gspmd = name
	}
}

// recursion finds a function that reaches itself: XLA has no recursion, and its
// inliner follows one until the stack ends.
func (f *moduleFacts) recursion() error {
	const onPath, done = 1, 2
	state := map[string]int{}
	type frame struct {
		name string
		next int
	}
	for _, root := range f.order {
		if state[root] == done {
			continue
		}
		state[root] = onPath
		for stack := []frame{{root, 0}}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			refs := f.refs[top.name]
			if top.next == len(refs) {
				state[top.name] = done
				stack = stack[:len(stack)-1]
				continue
			}
			callee := refs[top.next]
			top.next++
			switch {
			case state[callee] == onPath:
				return codeError("function @%s calls itself by way of @%s; XLA has no recursion, use stablehlo.while", callee, top.name)
			case state[callee] == 0 && f.defined[callee]:
				state[callee] = onPath
				stack = append(stack, frame{callee, 0})
			}
		}
	}
	return nil
}

// checkDims looks at the text after "tensor<": dimensions whose product no
// address can count abort the compiler.
func checkDims(s string) error {
	total := uint64(1)
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == start || i == len(s) || s[i] != 'x' {
			return nil
		}
		var d uint64
		for _, c := range []byte(s[start:i]) {
			if d > math.MaxInt64/10-1 {
				return codeError("dimension %s of a tensor is too large", s[start:i])
			}
			d = d*10 + uint64(c-'0')
		}
		// 16 bytes is the largest element.
		if d > 0 && total > math.MaxInt64/16/d {
			return codeError("tensor<%s...> has more elements than memory can address", s[:i])
		}
		total *= max(d, 1)
		i++
	}
	return nil
}

func isName(c byte) bool {
	return c == '_' || c == '$' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// scanString reads a quoted MLIR string at the start of s: its text and its
// length with the quotes. An unterminated one goes to the end.
func scanString(s string) (text string, n int) {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], i + 1
		}
	}
	return s[1:], len(s)
}
