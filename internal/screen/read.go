package screen

import (
	"bytes"
	"strings"
)

// Read reads the text of a module into its operations, for those who count or describe what is in
// it. It returns false for bytecode, and for brackets that are nested deeper than compilers take.
func Read(code []byte) (*Region, bool) {
	if bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) || !shallow(code) {
		return nil, false
	}
	top, _ := read(string(code))
	return top, true
}

// shallow reports whether brackets are nested no deeper than maxNesting.
func shallow(code []byte) bool {
	depth := 0
	for i := mark(code, 0); i < len(code); i = mark(code, i+1) {
		switch code[i] {
		case '"':
			for i++; i < len(code) && code[i] != '"'; i++ {
				if code[i] == '\\' {
					i++
				}
			}
		case '{', '(', '[':
			if depth++; depth > maxNesting {
				return false
			}
		case '}', ')', ']':
			depth--
		}
	}
	return true
}

// Attribute returns the text of an attribute's value; "" if there is no such attribute.
func (op *Operation) Attribute(key string) string { return op.get(key) }

// IsResult reports whether name, which may be one of several results as in %x#1, is the
// operation's.
func (op *Operation) IsResult(name string) bool {
	base, _, _ := strings.Cut(name, "#")
	for _, r := range op.Results {
		if r == base {
			return true
		}
	}
	return false
}
