package pjrt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// serialMagic starts a serialized executable that names its parameters, plainMagic one that does
// not.
const (
	serialMagic = "TPUSTRATEGY EXE2"
	plainMagic  = "TPUSTRATEGY EXE1"
)

// seal puts magic and checksum before a plugin's bytes, and the types of the parameters if they are
// known: a plugin writes out the whole program to tell them. Plugins map the bytes as machine code
// after few checks of their own: one wrong bit can end the process.
func seal(b []byte, params *[]*shape) []byte {
	magic, types := plainMagic, []byte(nil)
	if params != nil {
		list := appendShapes(nil, *params)
		magic, types = serialMagic, append(binary.AppendUvarint(nil, uint64(len(list))), list...)
	}
	hash := sha256.New()
	hash.Write(types)
	hash.Write(b)
	return slices.Concat([]byte(magic), hash.Sum(nil), types, b)
}

// unseal is the inverse of seal.
func unseal(b []byte) (payload []byte, params []*shape, err error) {
	const head = len(serialMagic) + sha256.Size
	fail := func(reason string) ([]byte, []*shape, error) {
		return nil, nil, &CompileError{Field: "serialized executable", Reason: reason, Hint: "compile the program again"}
	}
	const foreign = "it was not written by Executable.Serialize"
	if len(b) < head {
		return fail(foreign)
	}
	magic := string(b[:len(serialMagic)])
	if magic != serialMagic && magic != plainMagic {
		return fail(foreign)
	}
	if sum := sha256.Sum256(b[head:]); !bytes.Equal(sum[:], b[len(serialMagic):head]) {
		return fail("its checksum is wrong: it was cut short or changed")
	}
	rest := b[head:]
	if magic == plainMagic {
		return rest, nil, nil
	}
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return fail(foreign)
	}
	list, payload := rest[n:n+int(size)], rest[n+int(size):]
	params, ok := readShapes(list)
	if !ok || !bytes.Equal(rest[:n], binary.AppendUvarint(nil, size)) || !bytes.Equal(list, appendShapes(nil, params)) {
		return fail(foreign)
	}
	return payload, params, nil
}

// appendShapes writes how many shapes there are, and of each its type, its rank and its dimensions.
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

// readShapes reads what appendShapes wrote. The list is not nil.
func readShapes(b []byte) (all []*shape, ok bool) {
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
		all = append(all, shapeOf64(DType(dtype), dims))
	}
	return all, ok && len(b) == 0
}
