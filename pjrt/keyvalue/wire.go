package keyvalue

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// A connection carries one request and its answer: so a wait for a key holds up no other, and ends
// with its connection. It begins with a handshake, before which nothing is read. A message is "TPK2",
// an operation or a code, and two strings, each after its length. While a request waits for its key,
// the server says so every [beat].
const wireMagic = "TPK2"

const (
	opGet = iota
	opTryGet
	opPut
	// stillWaiting is of the server's messages that are no answer yet.
	stillWaiting = 1 << 31
)

// message is a request: an operation, a key and a value; or an answer: a code, and in the place of
// the value the value, or the text of an error.
type message struct {
	what  uint32
	key   string
	value []byte
}

func (m message) write(w io.Writer) error {
	b := make([]byte, 0, len(wireMagic)+3*4+len(m.key)+len(m.value))
	b = append(b, wireMagic...)
	b = binary.BigEndian.AppendUint32(b, m.what)
	for _, part := range []string{m.key, string(m.value)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	_, err := w.Write(b)
	return err
}

func read(r io.Reader) (m message, err error) {
	var head [len(wireMagic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	if string(head[:4]) != wireMagic {
		return m, &errkind.Fault{Op: "keyvalue: message", Reason: fmt.Sprintf("it begins with %q, not with %q", head[:4], wireMagic), Err: pjrt.InvalidArgument}
	}
	m.what = binary.BigEndian.Uint32(head[4:])
	var parts [2][]byte
	for i, most := range []uint32{MaxKey, MaxValue} {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return m, err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > most {
			return m, &errkind.Fault{Op: "keyvalue: message", Reason: fmt.Sprintf("a part of %d bytes is over the limit of %d", n, most), Err: pjrt.InvalidArgument}
		}
		// Grows as the bytes come, whatever was announced.
		if parts[i], err = io.ReadAll(io.LimitReader(r, int64(n))); err != nil {
			return m, err
		}
		if len(parts[i]) < int(n) {
			return m, io.ErrUnexpectedEOF
		}
	}
	m.key, m.value = string(parts[0]), parts[1]
	return m, nil
}
