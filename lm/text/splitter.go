package text

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/tpustrategy/tpustrategy/lm/text/internal/regex"
)

// splitStep is a step of a file's pre_tokenizer. It splits each piece of a text, or converts the
// bytes of each piece to visible characters.
type splitStep struct {
	expression      *regex.Regexp         // one of expression, isMatch and matchEnd finds the matches
	isMatch         func(r rune) bool     // matches single characters
	matchEnd        func([]byte, int) int // returns the end of the match at an index; matches are adjacent
	behavior        string                // one of the behaviors below
	inverted        bool                  // swap matches and the text between matches
	addsPrefixSpace bool                  // add a space before pieces that do not begin with a space
	byteLevel       bool                  // convert bytes to visible characters
}

// The behaviors of Hugging Face's pre-tokenizer Split. A behavior specifies whether each match is
// removed, becomes a separate piece, or is merged with adjacent text.
const (
	behaviorRemoved            = "Removed"
	behaviorIsolated           = "Isolated"
	behaviorMergedWithPrevious = "MergedWithPrevious"
	behaviorMergedWithNext     = "MergedWithNext"
	behaviorContiguous         = "Contiguous"
)

// span is a match in a piece of text, or the text between two matches.
type span struct {
	start, end int
	isMatch    bool
}

// splitWords applies all steps to piece and calls word for each resulting word. If mapped is set,
// the bytes of piece were already converted to visible characters.
func splitWords(steps []splitStep, m *regex.Matcher, piece []byte, mapped bool, word func([]byte)) {
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
	if s.addsPrefixSpace && piece[0] != ' ' {
		piece = append([]byte{' '}, piece...)
	}
	s.splitPiece(m, piece, func(subpiece []byte) {
		switch {
		case !s.byteLevel:
			splitWords(steps[1:], m, subpiece, mapped, word)
		case len(steps) == 1 && !mapped:
			word(subpiece)
		default:
			splitWords(steps[1:], m, []byte(bytesToVisible(string(subpiece))), true, word)
		}
	})
}

func visibleToRawBytes(text []byte) []byte {
	out, _ := visibleToBytes(string(text))
	return []byte(out)
}

// splitPiece splits a piece and calls part for each part, which may be empty.
func (s *splitStep) splitPiece(m *regex.Matcher, piece []byte, part func([]byte)) {
	switch {
	case s.matchEnd != nil:
		for i := 0; i < len(piece); {
			end := s.matchEnd(piece, i)
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
		spans[i].isMatch = spans[i].isMatch != s.inverted
	}
	for _, p := range applyBehavior(s.behavior, spans) {
		part(piece[p.start:p.end])
	}
}

// findSpans returns the matches in a piece and the text between matches, in order.
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

// applyBehavior removes the matches, or merges them with adjacent text, as the step's behavior
// specifies.
func applyBehavior(behavior string, spans []span) (out []span) {
	previous := false
	switch behavior {
	case behaviorRemoved:
		for _, s := range spans {
			if !s.isMatch {
				out = append(out, s)
			}
		}
		return out
	case behaviorContiguous, behaviorMergedWithPrevious:
		for _, s := range spans {
			merge := s.isMatch == previous
			if behavior == behaviorMergedWithPrevious {
				merge = s.isMatch && !previous
			}
			if merge && len(out) > 0 {
				out[len(out)-1].end = s.end
			} else {
				out = append(out, s)
			}
			previous = s.isMatch
		}
		return out
	case behaviorMergedWithNext:
		for i := len(spans) - 1; i >= 0; i-- {
			s := spans[i]
			if s.isMatch && !previous && len(out) > 0 {
				out[len(out)-1].start = s.start
			} else {
				out = append(out, s)
			}
			previous = s.isMatch
		}
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
		return out
	}
	return spans
}

// splitSteps returns the steps of a pre_tokenizer, and whether one of them is a ByteLevel.
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
		s.byteLevel, s.addsPrefixSpace = true, is(p.AddPrefixSpace, true)
		if is(p.UseRegex, true) {
			s.matchEnd = gpt2WordEnd
		}
		return []splitStep{s}, true, nil
	case "Split":
		s.inverted = is(p.Invert, false)
		s.matchEnd = nativeWordEnd(p.Pattern["Regex"])
		if s.matchEnd != nil && !s.inverted && s.behavior == behaviorIsolated {
			break
		}
		s.matchEnd = nil
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
		s.isMatch, s.behavior = unicode.IsNumber, behaviorContiguous
		if is(p.IndividualDigits, false) {
			s.behavior = behaviorIsolated
		}
	case "Punctuation":
		s.isMatch = isPunctuation
		if s.behavior == "" {
			s.behavior = behaviorIsolated
		}
	default:
		return nil, false, tokenizerFileError(preTokenizerHint, "its pre_tokenizer has the step %q", p.Type)
	}
	switch s.behavior {
	case behaviorRemoved, behaviorIsolated, behaviorMergedWithPrevious, behaviorMergedWithNext, behaviorContiguous:
		return []splitStep{s}, false, nil
	}
	return nil, false, tokenizerFileError(preTokenizerHint, "a %s of its pre_tokenizer has the behavior %q", p.Type,
		s.behavior)
}

var preTokenizerHint = fmt.Sprintf(
	"supported are Sequence, ByteLevel, Split, Digits and Punctuation, with the behaviors %s, %s, %s, %s and %s",
	behaviorRemoved, behaviorIsolated, behaviorContiguous, behaviorMergedWithPrevious, behaviorMergedWithNext)

// nativeWordEnd returns the wordEnd function of a known regular expression, or nil.
func nativeWordEnd(expression string) func([]byte, int) int {
	for _, p := range patterns {
		if p.expression != "" && p.expression == expression {
			return p.wordEnd
		}
	}
	return nil
}
