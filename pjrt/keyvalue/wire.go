package keyvalue

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// wireMagic starts each message. After a handshake, a connection is used for one request and its
// response, so that a wait for a key does not block other requests and ends with its connection. A
// message consists of wireMagic, an operation or a code, and two strings with their lengths.
const wireMagic = "TPK2"

const (
	opGet = iota
	opTryGet
	opPut
	codeKeepAlive = 1 << 31
)

// message is a request or a response. A request contains an operation, a key and a value. A
// response contains a code, and the value or an error message.
type message struct {
	code  uint32
	key   string
	value []byte
}

func (m message) write(w io.Writer) error {
	b := make([]byte, 0, len(wireMagic)+3*4+len(m.key)+len(m.value))
	b = append(b, wireMagic...)
	b = binary.BigEndian.AppendUint32(b, m.code)
	for _, part := range []string{m.key, string(m.value)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	_, err := w.Write(b)
	return err
}

func readMessage(r io.Reader) (m message, err error) {
	var head [len(wireMagic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	if string(head[:4]) != wireMagic {
		return m, &errkind.Fault{Op: "keyvalue: message",
			Reason: fmt.Sprintf("it starts with %q instead of %q", head[:4], wireMagic), Err: pjrt.InvalidArgument}
	}
	m.code = binary.BigEndian.Uint32(head[4:])
	var parts [2][]byte
	for i, limit := range []uint32{MaxKeyBytes, MaxValueBytes} {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return m, err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > limit {
			return m, &errkind.Fault{Op: "keyvalue: message",
				Reason: fmt.Sprintf("a string of %d bytes is longer than the limit of %d", n, limit),
				Err:    pjrt.InvalidArgument}
		}
		// ReadAll allocates only for the bytes that are received.
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
