package weights

import "encoding/binary"

// tile is the side of a square that is transposed at a time: a row of it is a line of the cache, or
// half of one, so that each line is read once and written once.
const tile = 16

// turn writes a square of a transpose: row r of it begins at element starts[r] + at of src, and its
// elements go to into+r, into+r+step, ... of dst.
type turn func(dst []byte, into, step int, src []byte, starts []int, at int)

// turn4 turns elements of four bytes.
func turn4(dst []byte, into, step int, src []byte, starts []int, at int) {
	var square [tile * tile]uint32
	for r, start := range starts[:tile] {
		row := src[4*(start+at):][: 4*tile : 4*tile]
		for i := range tile {
			square[i*tile+r] = binary.LittleEndian.Uint32(row[4*i : 4*i+4])
		}
	}
	store4(dst, into, step, &square)
}

// turnWide turns bfloat16 to float32.
func turnWide(dst []byte, into, step int, src []byte, starts []int, at int) {
	var square [tile * tile]uint32
	for r, start := range starts[:tile] {
		row := src[2*(start+at):][: 2*tile : 2*tile]
		for i := range tile {
			square[i*tile+r] = uint32(binary.LittleEndian.Uint16(row[2*i:2*i+2])) << 16
		}
	}
	store4(dst, into, step, &square)
}

func store4(dst []byte, into, step int, square *[tile * tile]uint32) {
	for i := range tile {
		line, from := dst[4*(into+i*step):][:4*tile:4*tile], square[i*tile:][:tile:tile]
		for r := 0; r < tile; r += 2 {
			binary.LittleEndian.PutUint64(line[4*r:4*r+8], uint64(from[r+1])<<32|uint64(from[r]))
		}
	}
}

// turn2 turns elements of two bytes.
func turn2(dst []byte, into, step int, src []byte, starts []int, at int) {
	var square [tile * tile]uint16
	for r, start := range starts[:tile] {
		row := src[2*(start+at):][: 2*tile : 2*tile]
		for i := range tile {
			square[i*tile+r] = binary.LittleEndian.Uint16(row[2*i : 2*i+2])
		}
	}
	for i := range tile {
		line, from := dst[2*(into+i*step):][:2*tile:2*tile], square[i*tile:][:tile:tile]
		for r := 0; r < tile; r += 4 {
			binary.LittleEndian.PutUint64(line[2*r:2*r+8], uint64(from[r+3])<<48|uint64(from[r+2])<<32|uint64(from[r+1])<<16|uint64(from[r]))
		}
	}
}
