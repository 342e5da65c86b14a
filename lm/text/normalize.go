package text

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizeNFC returns text in Unicode's normalization form C, with the same result as Hugging Face's
// tokenizers. It returns text itself if nothing changes. Bytes that are not UTF-8 stay unchanged.
func normalizeNFC(text []byte) []byte {
	if norm.NFC.IsNormal(text) {
		return text
	}
	var out []byte
	begin := 0
	for i, r := range string(text) {
		if r < utf8.RuneSelf || !unicode.Is(newerCombiningMarks, r) {
			continue
		}
		end := i + utf8.RuneLen(r)
		out = append(appendNFC(out, text[begin:i]), text[i:end]...)
		begin = end
	}
	return appendNFC(out, text[begin:])
}

func appendNFC(dst, text []byte) []byte {
	normal := norm.NFC.Bytes(text)
	// Package norm writes a grapheme joiner behind 30 marks in a row (the Stream-Safe Text Format).
	// The official package does not.
	joiner := []byte("\u034f")
	if bytes.Count(normal, joiner) != bytes.Count(text, joiner) {
		normal = normalizeLongSequences(text)
	}
	return append(dst, normal...)
}

// normalizeLongSequences normalizes text with more consecutive combining marks than package norm
// supports.
func normalizeLongSequences(text []byte) []byte {
	var out []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			out = append(out, text[i])
			i++
			continue
		}
		var segment []rune // a starter and the marks behind it, decomposed
		for i < len(text) {
			r, n = utf8.DecodeRune(text[i:])
			properties := norm.NFD.Properties(text[i : i+n])
			if r == utf8.RuneError && n == 1 || len(segment) > 0 && properties.BoundaryBefore() &&
				norm.NFC.Properties(text[i:i+n]).BoundaryBefore() {
				break
			}
			segment = append(segment, []rune(norm.NFD.String(string(r)))...)
			i += n
		}
		out = append(out, string(composeRunes(segment))...)
	}
	return out
}

func combiningClass(r rune) uint8 { return norm.NFD.PropertiesString(string(r)).CCC() }

// composeRunes sorts combining marks and composes decomposed characters, as defined by Unicode.
func composeRunes(decomposed []rune) []rune {
	for i := 0; i < len(decomposed); {
		if combiningClass(decomposed[i]) == 0 {
			i++
			continue
		}
		end := i
		for end < len(decomposed) && combiningClass(decomposed[end]) != 0 {
			end++
		}
		slices.SortStableFunc(decomposed[i:end],
			func(a, b rune) int { return int(combiningClass(a)) - int(combiningClass(b)) })
		i = end
	}
	var out []rune
	starter, last := -1, -1 // the position of the starter in out, the class of the character before
	for _, r := range decomposed {
		class := int(combiningClass(r))
		if starter >= 0 && (last < class || last == 0 && starter == len(out)-1) {
			if joined := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(joined) == 1 {
				out[starter] = joined[0]
				continue
			}
		}
		if class == 0 {
			starter, last = len(out), 0
		} else {
			last = class
		}
		out = append(out, r)
	}
	return out
}
