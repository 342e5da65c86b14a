// Package idx reads the IDX file format, in which the MNIST images come.
//
// A file is a magic number (two zero bytes, the element type, the number of dimensions), each
// dimension as a big-endian uint32, then the elements, the last dimension fastest. Read takes files
// of unsigned bytes, which is what images and labels are, plain or gzip compressed.
//
// The header of a file is not believed: memory is taken as data arrives, and a file that is shorter
// or longer than its header says is an error.
package idx
