package text

import (
	"unicode"
	"unicode/utf8"
)

// addedToken is a token such as <|endoftext|> that is found in a text before the text is split.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // matches only where neither neighbor is a word character
	lstrip     bool // includes the preceding white space
	rstrip     bool // includes the following white space
	normalized bool // is found in the normalized text
	special    bool
}

// tokenTrie is a prefix tree that finds the longest added token at a position of a text.
type tokenTrie struct {
	tokens     []addedToken
	nodes      []trieNode // the root is first
	firstBytes [256]bool  // the first bytes of all tokens
}

type trieNode struct {
	token int32 // index in tokenTrie.tokens, or -1
	edges []trieEdge
}

type trieEdge struct {
	b    byte
	node int32
}

// addToken adds a token that is found where the text contains pattern. It returns false if another
// token has the same pattern.
func (m *tokenTrie) addToken(pattern string, token addedToken) bool {
	if len(m.nodes) == 0 {
		m.nodes = []trieNode{{token: -1}}
	}
	node := int32(0)
	m.firstBytes[pattern[0]] = true
	for i := range len(pattern) {
		next := m.childNode(node, pattern[i])
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

func (m *tokenTrie) childNode(node int32, b byte) int32 {
	for _, e := range m.nodes[node].edges {
		if e.b == b {
			return e.node
		}
	}
	return -1
}

// findToken returns the longest token at the leftmost possible position in text[offset:], and its
// bounds in text. It returns nil if there is none.
func (m *tokenTrie) findToken(text []byte, offset int) (t *addedToken, start, end int) {
	for start = offset; start < len(text); start++ {
		if !m.firstBytes[text[start]] {
			continue
		}
		node := int32(0)
		for i := start; i < len(text); i++ {
			if node = m.childNode(node, text[i]); node < 0 {
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

// splitText finds the added tokens in text. It calls onToken with the id of each token, and onText
// with the text between tokens. Like Hugging Face's tokenizers, it strips white space next to a
// token even if another token begins with that white space.
func (m *tokenTrie) splitText(text []byte, skipSpecial bool, onToken func(id int32), onText func(text []byte)) {
	done := 0
	for offset := 0; len(m.tokens) > 0; {
		t, start, end := m.findToken(text, offset)
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
			start = max(done, start-trailingSpaceLen(text[:start]))
		}
		if t.rstrip {
			end += leadingSpaceLen(text[end:])
		}
		if done < start {
			onText(text[done:start])
		}
		onToken(t.id)
		done = end
	}
	if done < len(text) {
		onText(text[done:])
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

// trailingSpaceLen returns the length of the white space at the end of text, in bytes.
func trailingSpaceLen(text []byte) int {
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

// leadingSpaceLen returns the length of the white space at the beginning of text, in bytes.
func leadingSpaceLen(text []byte) int {
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
