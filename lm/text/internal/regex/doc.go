// Package regex matches the regular expressions that tokenizer files contain. They are written in
// the syntax of Oniguruma (Ruby's syntax), which has lookahead and possessive quantifiers; package
// regexp of the standard library has neither.
//
// The package supports literals, classes (nested, negated, POSIX brackets and Unicode properties),
// groups, alternation, greedy, lazy and possessive quantifiers, atomic groups, lookahead, lookbehind
// of a single character, line and text anchors, word boundaries, and the options i, m and x.
// Compile returns an error for every other construct, such as a back reference.
package regex
