package text

import (
	"unicode"
	"unicode/utf8"
)

// addedToken is a token whose content Append finds in texts before it splits them into words.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // only where neither neighbor is a word character
	lstrip     bool // with the white space before
	rstrip     bool // with the white space after
	normalized bool // in the normalized text
	special    bool
}

// tokenTrie finds the longest added token at a position of a text.
type tokenTrie struct {
	tokens []addedToken
	nodes  []trieNode // the root is first
	first  [256]bool  // the first bytes of the contents
}

type trieNode struct {
	token int32 // an index of tokens, or -1
	edges []trieEdge
}

type trieEdge struct {
	b    byte
	node int32
}

// add adds a token that is found by its pattern. It returns false if another token has the pattern.
func (m *tokenTrie) add(pattern string, token addedToken) bool {
	if len(m.nodes) == 0 {
		m.nodes = []trieNode{{token: -1}}
	}
	node := int32(0)
	m.first[pattern[0]] = true
	for i := range len(pattern) {
		next := m.child(node, pattern[i])
		if next < 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, trieNode{token: -1})
			m.nodes[node].edges = append(m.nodes[node].edges, trieEdge{pattern[i], next})
		}
		node = next
	}
	if m.nodes[node].token >= 0 {
		return false
	}
	m.nodes[node].token = int32(len(m.tokens))
	m.tokens = append(m.tokens, token)
	return true
}

func (m *tokenTrie) child(node int32, b byte) int32 {
	for _, e := range m.nodes[node].edges {
		if e.b == b {
			return e.node
		}
	}
	return -1
}

// find returns the leftmost and longest token in text from offset on, and its bounds. It returns nil
// if there is none.
func (m *tokenTrie) find(text []byte, offset int) (t *addedToken, start, end int) {
	for start = offset; start < len(text); start++ {
		if !m.first[text[start]] {
			continue
		}
		node := int32(0)
		for i := start; i < len(text); i++ {
			if node = m.child(node, text[i]); node < 0 {
				break
			}
			if token := m.nodes[node].token; token >= 0 {
				t, end = &m.tokens[token], i+1
			}
		}
		if t != nil {
			return t, start, end
		}
	}
	return nil, 0, 0
}

// split finds the tokens in text. It calls found with the id of each token, and other with the text
// between the tokens. Like the official package, it removes the spaces that a token strips even if
// another token begins with them.
func (m *tokenTrie) split(text []byte, skipSpecial bool, found func(id int32), other func(text []byte)) {
	done := 0
	for offset := 0; len(m.tokens) > 0; {
		t, start, end := m.find(text, offset)
		if t == nil {
			break
		}
		offset = end
		if t.special && skipSpecial {
			continue
		}
		if t.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if t.lstrip {
			start = max(done, start-spaceBefore(text[:start]))
		}
		if t.rstrip {
			end += spaceAfter(text[end:])
		}
		if done < start {
			other(text[done:start])
		}
		found(t.id)
		done = end
	}
	if done < len(text) {
		other(text[done:])
	}
}

func isWordRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control)
}

func startsWithWord(text []byte) bool {
	r, n := utf8.DecodeRune(text)
	return n > 0 && isWordRune(r)
}

func endsWithWord(text []byte) bool {
	r, n := utf8.DecodeLastRune(text)
	return n > 0 && isWordRune(r)
}

// spaceBefore returns the number of bytes of white space at the end of text.
func spaceBefore(text []byte) int {
	n := len(text)
	for n > 0 {
		r, size := utf8.DecodeLastRune(text[:n])
		if !unicode.IsSpace(r) {
			break
		}
		n -= size
	}
	return len(text) - n
}

// spaceAfter returns the number of bytes of white space at the beginning of text.
func spaceAfter(text []byte) int {
	n := 0
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if !unicode.IsSpace(r) {
			break
		}
		n += size
	}
	return n
}
