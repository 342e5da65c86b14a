// Package safetensors reads and writes the safetensors file format, which stores named tensors as
// raw little-endian bytes.
//
// # Format
//
// A file consists of the length of the header (8 bytes, little endian), the header, and the data.
// The header is a JSON object from tensor names to {"dtype", "shape", "data_offsets": [begin,
// end]}. Offsets are in bytes from the start of the data. The optional key "__metadata__" has an
// object of strings as its value. The header may end with spaces. Tensors are dense and row-major,
// and cover the data without gaps or overlaps.
//
// # Reading
//
// [New] reads and validates only the header. [File.ReadAt] then reads any range of a tensor, so a
// host can read only its shards of a checkpoint. Every violation of the format is an error that
// matches [ErrFormat]. Memory use depends on the actual size of the header, not on the sizes that
// it specifies.
//
// # Writing
//
// [Write] writes tensors in the order of [EncodeHeader], and [WriteFile] writes a file atomically.
// Equal tensors and metadata always result in equal files.
package safetensors
