package regex

import (
	"strings"
	"unicode"
)

// namedClasses contains the POSIX classes and Oniguruma's other class names for Unicode.
var namedClasses = map[string]*charSet{
	"alpha":  {tables: []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic}},
	"digit":  {tables: []*unicode.RangeTable{unicode.Nd}},
	"alnum":  {tables: []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.Nd}},
	"space":  {tables: []*unicode.RangeTable{unicode.White_Space}},
	"upper":  {tables: []*unicode.RangeTable{unicode.Lu, unicode.Other_Uppercase}},
	"lower":  {tables: []*unicode.RangeTable{unicode.Ll, unicode.Other_Lowercase}},
	"punct":  {tables: []*unicode.RangeTable{unicode.P, unicode.S}},
	"cntrl":  {tables: []*unicode.RangeTable{unicode.Cc}},
	"blank":  {tables: []*unicode.RangeTable{unicode.Zs}, ranges: []rune{'\t', '\t'}},
	"xdigit": {ranges: []rune{'0', '9', 'a', 'f', 'A', 'F'}},
	// Oniguruma counts the superscripts and fractions of Latin-1 as word characters.
	"word": {tables: []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd,
		unicode.Pc},
		ranges: []rune{0xb2, 0xb3, 0xb9, 0xb9, 0xbc, 0xbe}},
	"any":      {ranges: []rune{0, unicode.MaxRune}},
	"ascii":    {ranges: []rune{0, 0x7f}},
	"alphabet": {tables: []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic}},
}

var wordSet = (&charSet{subsets: []*charSet{namedClasses["word"]}}).buildASCII()

// propertyKey returns a property's name in lower case, without spaces, hyphens and underscores.
func propertyKey(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
}

// unicodeTables contains the categories, scripts and properties of Unicode by propertyKey.
var unicodeTables = func() map[string]*unicode.RangeTable {
	all := map[string]*unicode.RangeTable{}
	for _, named := range []map[string]*unicode.RangeTable{unicode.Properties, unicode.Scripts, unicode.Categories} {
		for name, t := range named {
			all[propertyKey(name)] = t
		}
	}
	for alias, name := range unicode.CategoryAliases {
		all[propertyKey(alias)] = unicode.Categories[name]
	}
	return all
}()

// addProperty adds a named class, a Unicode property or its complement to s.
func (p *parser) addProperty(s *charSet, name string, negated bool) {
	key := propertyKey(name)
	sub, ok := namedClasses[key]
	if t := unicodeTables[key]; !ok && t != nil {
		sub, ok = &charSet{tables: []*unicode.RangeTable{t}}, true
	}
	if !ok {
		p.fail("the property %q is not known", name)
	}
	s.subsets = append(s.subsets, &charSet{negated: negated, subsets: []*charSet{sub}})
}
