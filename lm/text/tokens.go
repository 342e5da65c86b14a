package text

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Tokens contains the tokens of texts in memory, with the tokenizer's separator before, between and
// after the texts. It is immutable and safe for concurrent use.
type Tokens struct {
	bytesPerToken int // 1, 2 or 4
	blocks        [][]byte
	numTokens     int
	numBytes      int64
	checksum      uint32 // checksum of the blocks
	vocabulary    int
	separator     int32
}

// blockTokens is the number of tokens per block. Blocks avoid copying the existing tokens when the
// slice grows.
const blockTokens = 1 << 20

// Encode reads the texts of files and returns their tokens. In addition to the result it uses a few
// MiB of memory. If a file cannot be read, or is shorter than when it was listed, the error names
// the file. If ctx is canceled, Encode returns the error of ctx.
func Encode(ctx context.Context, files Files, tok Tokenizer) (*Tokens, error) {
	t, err := newTokens(tok)
	if err != nil {
		return nil, err
	}
	if files.Len() == 0 {
		return nil, valueError("encode", "list some files", "there are no texts")
	}
	var ids []int32 // of a chunk; the first chunk begins with the separator
	for p, err := range files.readChunks(ctx) {
		if err != nil {
			return nil, wrapError("encode", "", err)
		}
		t.numBytes += int64(len(p.data))
		if ids == nil {
			ids = append(make([]int32, 0, min(files.Bytes(), maxChunkBytes)+2), t.separator)
		}
		ids = tok.Append(ids, p.data)
		if slices.Contains(ids, NoToken) {
			return nil, missingByteError(tok, p.data, p.name, p.offset)
		}
		if p.isLast {
			ids = append(ids, t.separator)
		}
		if err := t.appendTokens(ids); err != nil {
			return nil, err
		}
		ids = ids[:0]
	}
	t.finish()
	return t, nil
}

// EncodeText returns the tokens of one text, with a separator before and after it.
func EncodeText(text []byte, tok Tokenizer) (*Tokens, error) {
	t, err := newTokens(tok)
	if err != nil {
		return nil, err
	}
	t.numBytes = int64(len(text))
	ids := tok.Append([]int32{t.separator}, text)
	if slices.Contains(ids, NoToken) {
		return nil, missingByteError(tok, text, "", 0)
	}
	if err := t.appendTokens(append(ids, t.separator)); err != nil {
		return nil, err
	}
	t.finish()
	return t, nil
}

// missingByteError returns an error for the first byte of text that has no token. text begins at
// the given offset of the file.
func missingByteError(tok Tokenizer, text []byte, name string, offset int64) error {
	f := &errkind.Fault{Op: "text: encode", Subject: name, Class: errkind.ValueError, Reason: "a byte has no token",
		Hint: "give texts in UTF-8, or a tokenizer whose vocabulary has all 256 bytes"}
	if b, ok := tok.(*BPE); ok {
		if index, found := b.firstMissingByte(text); found {
			f.Reason = fmt.Sprintf("the tokenizer's vocabulary has no token for the byte %#02x at position %d", text[index],
				offset+int64(index))
		}
	}
	return f
}

func newTokens(tok Tokenizer) (*Tokens, error) {
	if tok == nil {
		return nil, valueError("encode", "give one, such as text.Bytes()", "the tokenizer is nil")
	}
	t := &Tokens{vocabulary: tok.Vocabulary(), separator: tok.Separator(), bytesPerToken: 4}
	if t.vocabulary < 1 || t.vocabulary > math.MaxInt32 || t.separator < 0 || int(t.separator) >= t.vocabulary {
		return nil, valueError("encode", "give one whose separator is one of its tokens",
			"a tokenizer of %d tokens with the separator %d", t.vocabulary, t.separator)
	}
	if t.vocabulary <= 1<<16 {
		t.bytesPerToken = 2
	}
	if t.vocabulary <= 1<<8 {
		t.bytesPerToken = 1
	}
	return t, nil
}

func (t *Tokens) appendTokens(ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= t.vocabulary {
			return &errkind.Fault{Op: "text: encode",
				Reason: fmt.Sprintf("the tokenizer returned the token %d of a vocabulary of %d", id, t.vocabulary),
				Hint:   "give a tokenizer whose tokens are 0 to Vocabulary()-1", Class: errkind.ValueError}
		}
		if t.numTokens%blockTokens == 0 {
			t.blocks = append(t.blocks, make([]byte, 0, blockTokens*t.bytesPerToken))
		}
		block := &t.blocks[len(t.blocks)-1]
		switch t.bytesPerToken {
		case 1:
			*block = append(*block, byte(id))
		case 2:
			*block = binary.LittleEndian.AppendUint16(*block, uint16(id))
		default:
			*block = binary.LittleEndian.AppendUint32(*block, uint32(id))
		}
		t.numTokens++
	}
	return nil
}

// finish computes the checksum and releases unused memory. Call it after all tokens were appended.
func (t *Tokens) finish() {
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, b := range t.blocks {
		t.checksum = crc32.Update(t.checksum, table, b)
	}
	if n := len(t.blocks); n > 0 {
		t.blocks[n-1] = append([]byte(nil), t.blocks[n-1]...) // without unused capacity
	}
}

// Len returns the number of tokens, including separators.
func (t *Tokens) Len() int { return t.numTokens }

// Bytes returns the number of bytes of the texts.
func (t *Tokens) Bytes() int64 { return t.numBytes }

// Vocabulary returns the number of different tokens that the tokenizer has.
func (t *Tokens) Vocabulary() int { return t.vocabulary }

// Targets returns the number of tokens that a model predicts: all tokens except the first.
func (t *Tokens) Targets() int { return t.numTokens - 1 }

// Read copies tokens into ids, beginning with the token at index start, and returns the number of
// copied tokens. It is less than len(ids) only at the end of the tokens.
func (t *Tokens) Read(ids []int32, start int) int {
	if start < 0 || start >= t.numTokens {
		return 0
	}
	ids = ids[:min(len(ids), t.numTokens-start)]
	for done := 0; done < len(ids); {
		index := (start + done) % blockTokens
		block := t.blocks[(start+done)/blockTokens][index*t.bytesPerToken:]
		out := ids[done:min(len(ids), done+len(block)/t.bytesPerToken)]
		switch t.bytesPerToken {
		case 1:
			for i := range out {
				out[i] = int32(block[i])
			}
		case 2:
			for i := range out {
				out[i] = int32(binary.LittleEndian.Uint16(block[2*i:]))
			}
		default:
			for i := range out {
				out[i] = int32(binary.LittleEndian.Uint32(block[4*i:]))
			}
		}
		done += len(out)
	}
	return len(ids)
}
