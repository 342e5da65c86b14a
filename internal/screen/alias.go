package screen

import "strings"

// maxType bounds the text of a type whose aliases are written out: aliases of aliases can make any
// size of a few lines.
const maxType = 1 << 16

// expandTypes writes the aliases out in the types of an operation, so that who looks at them sees
// what the compiler will.
func (f *checker) expandTypes(op *Operation) error {
	if len(f.aliases) == 0 {
		return nil
	}
	for _, list := range []*[]string{&op.Ins, &op.Outs, &op.borderTypes} {
		var expanded []string // operands and results may share theirs
		for i, t := range *list {
			if strings.IndexByte(t, '!') < 0 {
				continue
			}
			if expanded == nil {
				expanded = append(expanded, *list...)
			}
			var err error
			if expanded[i], err = f.expand(t, 0); err != nil {
				return err
			}
		}
		if expanded != nil {
			*list = expanded
		}
	}
	return nil
}

// expand writes the aliases out in one type.
func (f *checker) expand(t string, depth int) (string, error) {
	var b strings.Builder
	for i := 0; i < len(t); {
		start := i
		switch {
		case t[i] == '"':
			_, n := scanString(t[i:])
			i += n
		case t[i] == '!':
			i = endOfSuffix(t, i+1)
			as, ok := f.aliases[t[start:i]]
			if !ok {
				break
			}
			inner, err := as, error(nil)
			if depth < 64 {
				inner, err = f.expand(as, depth+1)
			}
			if err != nil {
				return "", err
			}
			if b.WriteString(inner); b.Len() > maxType {
				return "", codeError("the type %.40s... is more than %d bytes once its aliases are written out", t, maxType)
			}
			continue
		default:
			i++
		}
		b.WriteString(t[start:i])
	}
	return b.String(), nil
}

// element looks at the type of an array's elements, in array<i64: 1, 2>: readers of text crash over
// what is no number.
func (f *checker) element(s string, i int) error {
	end := i
	switch {
	case i < len(s) && s[i] == '!':
		end = endOfSuffix(s, i+1)
		if len(f.aliases) == 0 { // they are read later
			f.elements = append(f.elements, s[i:end])
			return nil
		}
	default:
		end = endOfName(s, i)
	}
	switch s[i:end] {
	case "i1", "i8", "i16", "i32", "i64", "f32", "f64":
		return nil
	}
	return codeError("an array has elements of type %.40q, which crashes the compiler: write i1, i8, i16, i32, i64, f32 or f64, as in array<i64: 1, 2>", s[i:end])
}
