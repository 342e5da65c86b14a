package weights

import "encoding/binary"

const (
	// columnsPerBlock is the number of columns that are transposed at a time. It is also the number
	// of cache lines that are written alternately.
	columnsPerBlock = 8
	// rowsPerBlock divides the number of rows that are transposed at a time.
	rowsPerBlock = 4
)

// transposeFunc transposes a block of columnsPerBlock columns. Row r of the block begins at element
// starts[r]+srcStart of src. Column i is written to consecutive elements of dst, beginning with
// dstStart+i*step. The number of rows is a multiple of rowsPerBlock.
type transposeFunc func(dst []byte, dstStart, step int, src []byte, starts []int, srcStart int)

// transpose4 transposes elements of four bytes. It reads two rows at a time, so that each store
// writes two elements.
func transpose4(dst []byte, dstStart, step int, src []byte, starts []int, srcStart int) {
	l := newBlockColumns(dst, dstStart, step, 4, len(starts))
	for r := 0; r+2 <= len(starts); r += 2 {
		a, b := src[4*(starts[r]+srcStart):][:4*columnsPerBlock], src[4*(starts[r+1]+srcStart):][:4*columnsPerBlock]
		x, y := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		putUint64(l.a, 4*r, x<<32>>32|y<<32)
		putUint64(l.b, 4*r, x>>32|y>>32<<32)
		x, y = binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:])
		putUint64(l.c, 4*r, x<<32>>32|y<<32)
		putUint64(l.d, 4*r, x>>32|y>>32<<32)
		x, y = binary.LittleEndian.Uint64(a[16:]), binary.LittleEndian.Uint64(b[16:])
		putUint64(l.e, 4*r, x<<32>>32|y<<32)
		putUint64(l.f, 4*r, x>>32|y>>32<<32)
		x, y = binary.LittleEndian.Uint64(a[24:]), binary.LittleEndian.Uint64(b[24:])
		putUint64(l.g, 4*r, x<<32>>32|y<<32)
		putUint64(l.h, 4*r, x>>32|y>>32<<32)
	}
}

// transposeBF16ToF32 transposes bfloat16 elements and converts them to float32.
func transposeBF16ToF32(dst []byte, dstStart, step int, src []byte, starts []int, srcStart int) {
	l := newBlockColumns(dst, dstStart, step, 4, len(starts))
	for r := 0; r+2 <= len(starts); r += 2 {
		a, b := src[2*(starts[r]+srcStart):][:2*columnsPerBlock], src[2*(starts[r+1]+srcStart):][:2*columnsPerBlock]
		x, y := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		putUint64(l.a, 4*r, x<<48>>32|y<<48)
		putUint64(l.b, 4*r, x>>16<<48>>32|y>>16<<48)
		putUint64(l.c, 4*r, x>>32<<48>>32|y>>32<<48)
		putUint64(l.d, 4*r, x>>48<<16|y>>48<<48)
		x, y = binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:])
		putUint64(l.e, 4*r, x<<48>>32|y<<48)
		putUint64(l.f, 4*r, x>>16<<48>>32|y>>16<<48)
		putUint64(l.g, 4*r, x>>32<<48>>32|y>>32<<48)
		putUint64(l.h, 4*r, x>>48<<16|y>>48<<48)
	}
}

// transpose2 transposes elements of two bytes, four rows at a time.
func transpose2(dst []byte, dstStart, step int, src []byte, starts []int, srcStart int) {
	l := newBlockColumns(dst, dstStart, step, 2, len(starts))
	for r := 0; r+4 <= len(starts); r += 4 {
		for half := 0; half < columnsPerBlock; half += 4 {
			row := func(k int) uint64 { return binary.LittleEndian.Uint64(src[2*(starts[r+k]+srcStart+half):][:8]) }
			const even = 0x0000ffff0000ffff // columns
			x, y, z, w := row(0), row(1), row(2), row(3)
			x, y = x&even|y&even<<16, x>>16&even|y&^even
			z, w = z&even|w&even<<16, z>>16&even|w&^even
			if half == 0 {
				putUint64(l.a, 2*r, x<<32>>32|z<<32)
				putUint64(l.b, 2*r, y<<32>>32|w<<32)
				putUint64(l.c, 2*r, x>>32|z>>32<<32)
				putUint64(l.d, 2*r, y>>32|w>>32<<32)
			} else {
				putUint64(l.e, 2*r, x<<32>>32|z<<32)
				putUint64(l.f, 2*r, y<<32>>32|w<<32)
				putUint64(l.g, 2*r, x>>32|z>>32<<32)
				putUint64(l.h, 2*r, y>>32|w>>32<<32)
			}
		}
	}
}

// blockColumns are the slices of the result for the columns of a transposed block.
type blockColumns struct{ a, b, c, d, e, f, g, h []byte }

// newBlockColumns returns the slices for columns of n elements. bytes is the size of an element.
func newBlockColumns(dst []byte, start, step, bytes, n int) blockColumns {
	line := func(i int) []byte { return dst[bytes*(start+i*step):][: bytes*n : bytes*n] }
	return blockColumns{line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)}
}

func putUint64(column []byte, offset int, x uint64) {
	binary.LittleEndian.PutUint64(column[offset:offset+8], x)
}
