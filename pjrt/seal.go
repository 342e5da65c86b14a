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

// encodeSerialized prepends a magic number, a checksum and, if known, the shapes of the parameters to the bytes
// of a plugin. The checksum is necessary because plugins execute the bytes as machine code after
// few checks. The shapes avoid a query for which the plugin would serialize the whole program.
func encodeSerialized(b []byte, params *[]*shape) []byte {
	magic, types := magicPlain, []byte(nil)
	if params != nil {
		list := appendShapes(nil, *params)
		magic, types = magicWithShapes, append(binary.AppendUvarint(nil, uint64(len(list))), list...)
	}
	hash := sha256.New()
	hash.Write(types)
	hash.Write(b)
	return slices.Concat([]byte(magic), hash.Sum(nil), types, b)
}

// decodeSerialized checks the result of seal and returns its contents.
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

// appendShapes appends the number of shapes and, for each shape, its type, rank and dimensions.
func appendShapes(b []byte, all []*shape) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.dtype)), uint64(len(s.dims)))
		for _, d := range s.dims {
			b = binary.AppendUvarint(b, uint64(d))
		}
	}
	return b
}

// decodeShapes decodes the result of appendShapes. all is not nil if ok is true.
func decodeShapes(b []byte) (all []*shape, ok bool) {
	number := func() (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	ok = true
	count := number()
	if count > uint64(len(b)) { // each takes two bytes or more
		return nil, false
	}
	all = make([]*shape, 0, count)
	for range count {
		dtype, rank := number(), number()
		if !ok || rank > maxRank || dtype > uint64(^uint32(0)) {
			return nil, false
		}
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = int64(number())
		}
		all = append(all, newShapeInt64(DType(dtype), dims))
	}
	return all, ok && len(b) == 0
}
