package text

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/tpustrategy/tpustrategy/lm/text/internal/regex"
)

// splitStep is a step of a file's pre_tokenizer: it splits each piece of a text, or writes the bytes
// of each piece as the characters of ByteLevel.
type splitStep struct {
	expression *regex.Regexp         // or
	isMatch    func(r rune) bool     // for single characters
	next       func([]byte, int) int // or a pattern that matches everything
	behavior   string                // what happens to matches, one of the behaviors below
	inverted   bool                  // swaps matches and the text between them
	prefix     bool                  // puts a space before pieces that do not begin with one
	byteLevel  bool                  // then writes the bytes as characters
}

// The behaviors of Hugging Face's Split.
const (
	removed            = "Removed"
	isolated           = "Isolated"
	mergedWithPrevious = "MergedWithPrevious"
	mergedWithNext     = "MergedWithNext"
	contiguous         = "Contiguous"
)

// span is a part of a piece: a match, or the text between matches.
type span struct {
	from, to int
	match    bool
}

// splitAll splits piece by all steps and calls word for each word.
func splitAll(steps []splitStep, m *regex.Matcher, piece []byte, mapped bool, word func([]byte)) {
	if len(piece) == 0 {
		return
	}
	if len(steps) == 0 {
		if mapped {
			piece = visibleToRawBytes(piece)
		}
		word(piece)
		return
	}
	s := &steps[0]
	if s.prefix && piece[0] != ' ' {
		piece = append([]byte{' '}, piece...)
	}
	s.split(m, piece, func(subpiece []byte) {
		switch {
		case !s.byteLevel:
			splitAll(steps[1:], m, subpiece, mapped, word)
		case len(steps) == 1 && !mapped:
			word(subpiece)
		default:
			splitAll(steps[1:], m, []byte(bytesToVisible(string(subpiece))), true, word)
		}
	})
}

// visibleToRawBytes converts the characters of ByteLevel back to bytes.
func visibleToRawBytes(text []byte) []byte {
	out, _ := visibleToBytes(string(text))
	return []byte(out)
}

// split calls part with the parts of a piece, which may be empty.
func (s *splitStep) split(m *regex.Matcher, piece []byte, part func([]byte)) {
	switch {
	case s.next != nil:
		for i := 0; i < len(piece); {
			end := s.next(piece, i)
			part(piece[i:end])
			i = end
		}
		return
	case s.expression == nil && s.isMatch == nil:
		part(piece)
		return
	}
	spans := s.findSpans(m, piece)
	for i := range spans {
		spans[i].match = spans[i].match != s.inverted
	}
	for _, p := range applyBehavior(s.behavior, spans) {
		part(piece[p.from:p.to])
	}
}

// findSpans returns the matches in a piece and the text between them, in order.
func (s *splitStep) findSpans(m *regex.Matcher, piece []byte) (spans []span) {
	done := 0
	match := func(from, to int) {
		if done < from {
			spans = append(spans, span{done, from, false})
		}
		spans = append(spans, span{from, to, true})
		done = to
	}
	if s.isMatch != nil {
		for i := 0; i < len(piece); {
			r, n := utf8.DecodeRune(piece[i:])
			if s.isMatch(r) {
				match(i, i+n)
			}
			i += n
		}
	} else {
		last := -1
		for offset := 0; offset <= len(piece); {
			from, to := s.expression.Find(m, piece, offset)
			if from < 0 {
				break
			}
			if from == to && to == last { // an empty match behind another match
				_, n := utf8.DecodeRune(piece[offset:])
				offset += max(n, 1)
				continue
			}
			match(from, to)
			offset, last = to, to
		}
	}
	if done < len(piece) {
		spans = append(spans, span{done, len(piece), false})
	}
	return spans
}

// applyBehavior merges or removes spans as the behavior specifies.
func applyBehavior(behavior string, spans []span) (out []span) {
	previous := false
	switch behavior {
	case removed:
		for _, s := range spans {
			if !s.match {
				out = append(out, s)
			}
		}
		return out
	case contiguous, mergedWithPrevious:
		for _, s := range spans {
			merge := s.match == previous
			if behavior == mergedWithPrevious {
				merge = s.match && !previous
			}
			if merge && len(out) > 0 {
				out[len(out)-1].to = s.to
			} else {
				out = append(out, s)
			}
			previous = s.match
		}
		return out
	case mergedWithNext:
		for i := len(spans) - 1; i >= 0; i-- {
			s := spans[i]
			if s.match && !previous && len(out) > 0 {
				out[len(out)-1].from = s.from
			} else {
				out = append(out, s)
			}
			previous = s.match
		}
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
		return out
	}
	return spans
}

// splitSteps returns the steps of a file's pre_tokenizer, and whether one of them is a ByteLevel.
func (p *preTokenizerJSON) splitSteps() (steps []splitStep, byteLevel bool, err error) {
	is := func(b *bool, absent bool) bool {
		if b == nil {
			return absent
		}
		return *b
	}
	s := splitStep{behavior: p.Behavior}
	switch p.Type {
	case "Sequence":
		for _, sub := range p.Pretokenizers {
			more, has, err := sub.splitSteps()
			if err != nil {
				return nil, false, err
			}
			steps, byteLevel = append(steps, more...), byteLevel || has
		}
		return steps, byteLevel, nil
	case "ByteLevel":
		s.byteLevel, s.prefix = true, is(p.AddPrefixSpace, true)
		if is(p.UseRegex, true) {
			s.next = nextGPT2
		}
		return []splitStep{s}, true, nil
	case "Split":
		s.inverted = is(p.Invert, false)
		if s.next = nativePattern(p.Pattern["Regex"]); s.next != nil && !s.inverted && s.behavior == isolated {
			break
		}
		s.next = nil
		expression, ok := p.Pattern["Regex"]
		if literal, isLiteral := p.Pattern["String"]; isLiteral {
			expression, ok = regex.Quote(literal), true
		}
		if !ok {
			return nil, false, tokenizerFileError(preTokenizerHint, "a Split of its pre_tokenizer has no pattern")
		}
		if s.expression, err = regex.Compile(expression); err != nil {
			return nil, false, tokenizerFileError(preTokenizerHint, "it splits texts by the pattern %q: %v", expression, err)
		}
	case "Digits":
		s.isMatch, s.behavior = unicode.IsNumber, contiguous
		if is(p.IndividualDigits, false) {
			s.behavior = isolated
		}
	case "Punctuation":
		s.isMatch = isPunctuation
		if s.behavior == "" {
			s.behavior = isolated
		}
	default:
		return nil, false, tokenizerFileError(preTokenizerHint, "its pre_tokenizer has the step %q", p.Type)
	}
	switch s.behavior {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
		return []splitStep{s}, false, nil
	}
	return nil, false, tokenizerFileError(preTokenizerHint, "a %s of its pre_tokenizer has the behavior %q", p.Type,
		s.behavior)
}

var preTokenizerHint = fmt.Sprintf(
	"supported are Sequence, ByteLevel, Split, Digits and Punctuation, with the behaviors %s, %s, %s, %s and %s",
	removed, isolated, contiguous, mergedWithPrevious, mergedWithNext)

// nativePattern returns the function that splits texts like a well-known expression, or nil.
func nativePattern(expression string) func([]byte, int) int {
	for _, p := range patterns {
		if p.expression != "" && p.expression == expression {
			return p.next
		}
	}
	return nil
}
