package text

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Tokenizer converts bytes to tokens and back. Implementations must be safe for concurrent use.
type Tokenizer interface {
	// Vocabulary returns the number of tokens. Their ids are 0 to Vocabulary()-1.
	Vocabulary() int
	// Separator returns the token that is inserted before, between and after texts.
	Separator() int32
	// Append appends the tokens of text, which may be any bytes, and returns the extended slice. It
	// appends no separator.
	Append(ids []int32, text []byte) []int32
	// AppendText appends the bytes of the tokens ids. It is the inverse of Append. An id that is
	// not a token is a ValueError.
	AppendText(text []byte, ids []int32) ([]byte, error)
}

// unknownTokenError returns an error for an invalid id at the given index.
func unknownTokenError(id int32, position, vocabulary int) error {
	return &errkind.Fault{Op: "text: tokens to text", Reason: fmt.Sprintf("number %d is %d", position, id),
		Class: errkind.ValueError,
		Hint:  fmt.Sprintf("give tokens of this tokenizer, 0 to %d", vocabulary-1)}
}

// Bytes returns a tokenizer with 256 tokens, one for each byte. The id of a byte is its value. The
// separator is the byte 0. If a text contains this byte, a model cannot distinguish it from the end
// of the text.
func Bytes() Tokenizer { return byteTokens{} }

type byteTokens struct{}

func (byteTokens) Vocabulary() int  { return 256 }
func (byteTokens) Separator() int32 { return 0 }

func (byteTokens) Append(ids []int32, text []byte) []int32 {
	for _, b := range text {
		ids = append(ids, int32(b))
	}
	return ids
}

func (byteTokens) AppendText(text []byte, ids []int32) ([]byte, error) {
	for i, id := range ids {
		if id < 0 || id > 255 {
			return text, unknownTokenError(id, i, 256)
		}
		text = append(text, byte(id))
	}
	return text, nil
}
