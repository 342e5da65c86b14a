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
	// is no token gives a ValueError.
	AppendText(text []byte, ids []int32) ([]byte, error)
}

// noToken is the error of a number, at a position in what was given, that is none of so many tokens.
func noToken(id int32, position, vocabulary int) error {
	return &errkind.Fault{Op: "text: tokens to text", Reason: fmt.Sprintf("number %d is %d", position, id), Class: errkind.ValueError,
		Hint: fmt.Sprintf("give tokens of this tokenizer, 0 to %d", vocabulary-1)}
}

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
			return text, noToken(id, i, 256)
		}
		text = append(text, byte(id))
	}
	return text, nil
}
