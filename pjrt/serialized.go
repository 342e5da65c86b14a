package pjrt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// These constants start a serialized executable with and without the shapes of its parameters.
const (
	magicWithShapes = "TPUSTRATEGY EXE2"
	magicPlain      = "TPUSTRATEGY EXE1"
)

// encodeSerialized prepends a magic number, a checksum and, if known, the shapes of the parameters
// to a program that the plugin serialized. The checksum is necessary because plugins execute the
// bytes as machine code after few checks. The shapes avoid a query for which the plugin would
// serialize the program again.
func encodeSerialized(payload []byte, params *[]*shape) []byte {
	magic, shapes := magicPlain, []byte(nil)
	if params != nil {
		list := appendShapes(nil, *params)
		magic, shapes = magicWithShapes, append(binary.AppendUvarint(nil, uint64(len(list))), list...)
	}
	hash := sha256.New()
	hash.Write(shapes)
	hash.Write(payload)
	return slices.Concat([]byte(magic), hash.Sum(nil), shapes, payload)
}

// decodeSerialized validates the result of encodeSerialized and returns its contents. params is nil
// if the shapes of the parameters are unknown.
func decodeSerialized(b []byte) (payload []byte, params []*shape, err error) {
	const head = len(magicWithShapes) + sha256.Size
	fail := func(reason string) ([]byte, []*shape, error) {
		return nil, nil, &CompileError{Field: "serialized executable", Reason: reason,
			Hint: "compile the program again"}
	}
	const foreign = "it was not written by Executable.Serialize"
	if len(b) < head {
		return fail(foreign)
	}
	magic := string(b[:len(magicWithShapes)])
	if magic != magicWithShapes && magic != magicPlain {
		return fail(foreign)
	}
	if sum := sha256.Sum256(b[head:]); !bytes.Equal(sum[:], b[len(magicWithShapes):head]) {
		return fail("its checksum is wrong, so it was truncated or modified")
	}
	rest := b[head:]
	if magic == magicPlain {
		return rest, nil, nil
	}
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return fail(foreign)
	}
	list, payload := rest[n:n+int(size)], rest[n+int(size):]
	params, ok := decodeShapes(list)
	if !ok || !bytes.Equal(rest[:n], binary.AppendUvarint(nil, size)) || !bytes.Equal(list, appendShapes(nil, params)) {
		return fail(foreign)
	}
	return payload, params, nil
}

// appendShapes encodes the number of shapes and, for each shape, its element type, rank and dimensions.
func appendShapes(dst []byte, shapes []*shape) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(shapes)))
	for _, s := range shapes {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(s.dtype)), uint64(len(s.dims)))
		for _, d := range s.dims {
			dst = binary.AppendUvarint(dst, uint64(d))
		}
	}
	return dst
}

// decodeShapes decodes the result of appendShapes. If ok is true, shapes is not nil.
func decodeShapes(b []byte) (shapes []*shape, ok bool) {
	readUvarint := func() (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	ok = true
	count := readUvarint()
	if count > uint64(len(b)) { // each shape uses two bytes or more
		return nil, false
	}
	shapes = make([]*shape, 0, count)
	for range count {
		dtype, rank := readUvarint(), readUvarint()
		if !ok || rank > maxRank || dtype > uint64(^uint32(0)) {
			return nil, false
		}
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = int64(readUvarint())
		}
		shapes = append(shapes, newShapeInt64(DType(dtype), dims))
	}
	return shapes, ok && len(b) == 0
}
