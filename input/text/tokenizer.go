package text

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Tokenizer turns bytes into tokens and back. Any number of goroutines may use one.
type Tokenizer interface {
	// Vocabulary returns the number of tokens: their ids are 0 to Vocabulary()-1.
	Vocabulary() int
	// Separator returns the token that stands before, between and after texts.
	Separator() int32
	// Append appends the tokens of text, which may be any bytes, and returns the extended slice. It
	// appends no separator.
	Append(ids []int32, text []byte) []int32
	// AppendText appends the bytes that ids stand for: those that Append made the ids of. An id that
	// is no token gives a [*TokenError].
	AppendText(text []byte, ids []int32) ([]byte, error)
}

// TokenError reports a number that is no token of the tokenizer.
type TokenError struct {
	ID         int32
	Position   int // of the number in what was given
	Vocabulary int // the tokens are 0 to Vocabulary-1
}

func (e *TokenError) Error() string {
	return errkind.Text("text: tokens to text", fmt.Sprintf("number %d is %d", e.Position, e.ID), nil,
		fmt.Sprintf("give tokens of this tokenizer, 0 to %d", e.Vocabulary-1))
}

// Kind returns ValueError.
func (*TokenError) Kind() errkind.Kind { return errkind.ValueError }

// Bytes returns the tokenizer whose tokens are the 256 bytes: the id of a byte is its value. The
// separator is the byte 0, which no source file has. Texts that have it are taken too, and a model
// then cannot tell this byte from the end of a text.
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
			return text, &TokenError{ID: id, Position: i, Vocabulary: 256}
		}
		text = append(text, byte(id))
	}
	return text, nil
}
