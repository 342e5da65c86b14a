// Package safetensors reads and writes the safetensors file format: tensors by name, as raw
// little-endian bytes.
//
// # Format
//
// A file is the length of the header (8 bytes, little endian), the header, and the data. The header
// is a JSON object from tensor name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets in
// bytes from the start of the data, with an optional entry "__metadata__" of strings to strings. It
// may end in blanks. Tensors are dense and row-major, and they cover the data without gaps or
// overlaps.
//
// # Reading
//
// [New] reads and checks the header only. Any part of a tensor can then be read with [File.ReadAt],
// so that a host reads no more of a checkpoint than its shards. Every deviation from the format is an
// error that matches [ErrFormat]; memory use is bounded by the header, never by what the header
// claims.
//
// # Writing
//
// [Write] streams tensors in the order of [Header]; [WriteFile] does so into a file that appears
// under its name complete or not at all. The same tensors and metadata always give the same bytes.
package safetensors
