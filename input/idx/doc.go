// Package idx reads the IDX file format of the MNIST data.
//
// A file consists of a magic number (two zero bytes, the element type, the number of dimensions),
// each dimension as a big-endian uint32, and the elements in row-major order. [Read] accepts files
// of unsigned bytes, plain or compressed with gzip.
//
// The header of a file is not trusted: memory is allocated as data is read, and a file whose length
// does not match its header is an error.
package idx
