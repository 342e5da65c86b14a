// Package safetensors reads and writes the safetensors file format, which stores named tensors as
// raw little-endian bytes.
//
// # Format
//
// A file consists of the length of the header (8 bytes, little endian), the header, and the data.
// The header is a JSON object from tensor names to {"dtype", "shape", "data_offsets": [begin,
// end]}. Offsets are in bytes from the start of the data. The optional entry "__metadata__" is an
// object of strings. The header may end with spaces. Tensors are dense and row-major, and cover the
// data without gaps or overlaps.
//
// # Reading
//
// [New] reads and checks only the header. [File.ReadAt] then reads any part of a tensor, so that a
// host can read only its shards of a checkpoint. Every violation of the format is an error that
// matches [ErrFormat]. Memory use depends on the actual size of the header, not on the sizes in it.
//
// # Writing
//
// [Write] writes tensors in the order of [EncodeHeader], and [WriteFile] writes a file atomically.
// Equal tensors and metadata always result in equal files.
package safetensors
