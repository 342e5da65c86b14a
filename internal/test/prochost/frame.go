package prochost

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// A frame consists of a magic number with the protocol version, the lengths of the header and the
// body, a JSON header, and a body of raw bytes.
const (
	frameMagic  = "TPH1"
	prefixBytes = 4 + 4 + 8
	// maxHeader limits the size of a header. The largest headers list the types of a program's
	// arguments.
	maxHeader = 4 << 20
	// growth is the number of bytes by which readGrowing grows a body. Memory is allocated only for
	// received bytes, not for the announced length.
	growth = 1 << 20
)

// writeFrame writes a header and the concatenation of the parts of the body.
func writeFrame(w io.Writer, header any, body ...[]byte) error {
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if len(text) > maxHeader {
		return fault("frame", errkind.ValueError, "a header of %d bytes is over the limit of %d", len(text), maxHeader)
	}
	prefix := make([]byte, 0, prefixBytes+len(text))
	prefix = append(prefix, frameMagic...)
	prefix = binary.BigEndian.AppendUint32(prefix, uint32(len(text)))
	prefix = binary.BigEndian.AppendUint64(prefix, uint64(size))
	parts := append(net.Buffers{append(prefix, text...)}, body...)
	_, err = parts.WriteTo(w)
	return err
}

// readFrame reads a frame whose body has at most maxBody bytes. At the end of the stream, between
// two frames, it returns io.EOF.
func readFrame(r io.Reader, header any, maxBody int64) (body []byte, err error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	if string(prefix[:4]) != frameMagic {
		return nil, fault("frame", errkind.InvalidArgumentError, "a frame begins with %q, not %q", prefix[:4], frameMagic)
	}
	headerBytes, bodyBytes := binary.BigEndian.Uint32(prefix[4:]), binary.BigEndian.Uint64(prefix[8:])
	switch {
	case headerBytes > maxHeader:
		return nil, fault("frame", errkind.InvalidArgumentError, "a header of %d bytes is over the limit of %d", headerBytes,
			maxHeader)
	case bodyBytes > uint64(maxBody):
		return nil, fault("frame", errkind.InvalidArgumentError, "a body of %d bytes is over the limit of %d", bodyBytes,
			maxBody)
	}
	text, err := readGrowing(r, int(headerBytes))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, header); err != nil {
		return nil, &errkind.Fault{Op: "prochost: frame", Reason: "a header is not what it should be", Err: err,
			Class: errkind.InvalidArgumentError}
	}
	return readGrowing(r, int(bodyBytes))
}

// readGrowing reads n bytes. It allocates memory in steps, as the bytes are received.
func readGrowing(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, growth))
	for read := 0; ; {
		m, err := io.ReadFull(r, b[read:])
		if read += m; err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		if read == n {
			return b, nil
		}
		grown := make([]byte, min(n, 2*len(b)))
		copy(grown, b)
		b = grown
	}
}
