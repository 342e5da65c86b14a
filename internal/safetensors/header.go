package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MaxHeaderBytes is the maximum size of a header that the format permits.
const MaxHeaderBytes = 100_000_000

const (
	lengthBytes = 8
	metadataKey = "__metadata__"
)

// ErrFormat matches all errors caused by files or tensors that violate the format.
var ErrFormat = errkind.New(errkind.DataLossError, "safetensors: invalid")

func formatError(format string, args ...any) error {
	return &errkind.Fault{Match: ErrFormat, Reason: fmt.Sprintf(format, args...)}
}

// ioError adds the operation and the file or tensor name to an I/O error.
func ioError(op, subject string, err error) error {
	return &errkind.Fault{Op: "safetensors: " + op, Subject: subject, Err: err}
}

// Spec describes a tensor that will be written to a file.
type Spec struct {
	Name  string
	DType DType
	Shape []int // row-major, none for a scalar
}

// Bytes returns the size of the tensor's data. It returns an error if the dtype is unknown, a
// dimension is negative, or the size overflows.
func (s Spec) Bytes() (int64, error) { return s.DType.byteSize(s.Shape) }

// Info describes a tensor and its position in a file.
type Info struct {
	Spec
	Offset int64 // from the start of the data, in bytes
	Bytes  int64
}

// parseHeader decodes the header of a file and validates it against the number of data bytes. It
// returns the tensors in the order of their data.
func parseHeader(header []byte, data int64) ([]Info, map[string]string, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, formatError("the header does not start with {")
	}
	if !utf8.Valid(header) {
		return nil, nil, formatError("the header is not UTF-8")
	}
	d := &headerDecoder{json.NewDecoder(bytes.NewReader(header))}
	d.UseNumber()
	var tensors []Info
	var metadata map[string]string
	err := d.readObject("header", func(name string) (err error) {
		if name == metadataKey {
			metadata, err = d.readMetadata()
			return err
		}
		t, err := d.readTensor(name)
		tensors = append(tensors, t)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if rest := bytes.Trim(header[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, nil, formatError("there is text after the JSON object of the header")
	}
	return tensors, metadata, checkCoverage(tensors, data)
}

// checkCoverage sorts tensors by offset and checks that they cover the data without gaps or overlaps.
func checkCoverage(tensors []Info, data int64) error {
	slices.SortFunc(tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for _, t := range tensors {
		if t.Offset < end {
			return formatError("tensor %q starts at byte %d, inside the one that ends at %d", t.Name, t.Offset, end)
		}
		if t.Offset > end {
			return formatError("bytes %d to %d before tensor %q belong to no tensor", end, t.Offset, t.Name)
		}
		if t.Bytes > data-end {
			return formatError("tensor %q of %d bytes at byte %d goes beyond the data of %d", t.Name, t.Bytes, end, data)
		}
		end += t.Bytes
	}
	if end != data {
		return formatError("bytes %d to %d at the end belong to no tensor", end, data)
	}
	return nil
}

// headerDecoder reads the header token by token. Unlike decoding to a map, this detects duplicate keys.
type headerDecoder struct{ *json.Decoder }

func (d *headerDecoder) token() (json.Token, error) {
	t, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, &errkind.Fault{Match: ErrFormat, Reason: "header", Err: err}
	}
	return t, nil
}

func (d *headerDecoder) expectDelim(delim json.Delim, subject string) error {
	t, err := d.token()
	if err == nil && t != delim {
		err = formatError("%s: found %v instead of %v", subject, t, delim)
	}
	return err
}

// readObject reads an object and calls field for each key. field must read the value.
func (d *headerDecoder) readObject(subject string, field func(key string) error) error {
	if err := d.expectDelim('{', subject); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok || seen[key] {
			return formatError("%s: key %v is duplicate or not a string", subject, t)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return d.expectDelim('}', subject)
}

func (d *headerDecoder) readString(subject string) (string, error) {
	t, err := d.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", formatError("%s is %v, not a string", subject, t)
	}
	return s, nil
}

func (d *headerDecoder) readMetadata() (map[string]string, error) {
	out := map[string]string{}
	err := d.readObject(metadataKey, func(key string) (err error) {
		out[key], err = d.readString(metadataKey + "." + key)
		return err
	})
	return out, err
}

func (d *headerDecoder) readInts(subject string) ([]int, error) {
	if err := d.expectDelim('[', subject); err != nil {
		return nil, err
	}
	var out []int
	for d.More() {
		t, err := d.token()
		if err != nil {
			return nil, err
		}
		number, _ := t.(json.Number)
		v, err := strconv.ParseUint(number.String(), 10, strconv.IntSize-1)
		if err != nil {
			return nil, formatError("%s contains %v, which is not a non-negative integer", subject, t)
		}
		out = append(out, int(v))
	}
	return out, d.expectDelim(']', subject)
}

func (d *headerDecoder) readTensor(name string) (Info, error) {
	t := Info{Spec: Spec{Name: name}}
	var offsets []int
	fields := 0
	subject := "tensor " + strconv.Quote(name)
	err := d.readObject(subject, func(key string) (err error) {
		fields++
		switch key {
		case "dtype":
			var s string
			s, err = d.readString(subject + ": dtype")
			t.DType = DType(s)
		case "shape":
			t.Shape, err = d.readInts(subject + ": shape")
		case "data_offsets":
			offsets, err = d.readInts(subject + ": data_offsets")
		default:
			err = formatError("%s: unknown field %q", subject, key)
		}
		return err
	})
	if err != nil {
		return Info{}, err
	}
	if fields != 3 || len(offsets) != 2 || offsets[1] < offsets[0] {
		return Info{}, formatError("%s needs dtype, shape and two ascending data_offsets", subject)
	}
	t.Offset, t.Bytes = int64(offsets[0]), int64(offsets[1]-offsets[0])
	size, err := t.DType.byteSize(t.Shape)
	if err != nil {
		return Info{}, &errkind.Fault{Op: "safetensors: read", Subject: subject, Err: err}
	}
	if size != t.Bytes {
		return Info{}, formatError("%s is %s of shape %v with %d bytes, but its data_offsets %v contain %d", subject, t.DType,
			t.Shape, size, offsets, t.Bytes)
	}
	return t, nil
}

// layoutTensors returns the tensors with their offsets, in the order in which they are written.
func layoutTensors(tensors []Spec) ([]Info, error) {
	out := make([]Info, len(tensors))
	seen := map[string]bool{}
	for i, s := range tensors {
		size, err := s.DType.byteSize(s.Shape)
		if err != nil {
			return nil, &errkind.Fault{Op: "safetensors: write", Subject: fmt.Sprintf("tensor %q", s.Name), Err: err}
		}
		if s.Name == metadataKey || seen[s.Name] || !utf8.ValidString(s.Name) {
			return nil, formatError("tensor name %q is duplicate, reserved or not UTF-8", s.Name)
		}
		seen[s.Name] = true
		s.Shape = slices.Clone(s.Shape)
		out[i] = Info{Spec: s, Bytes: size}
	}
	slices.SortFunc(out, func(a, b Info) int {
		return cmp.Or(b.DType.Bits()-a.DType.Bits(), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for i := range out {
		out[i].Offset = end
		if end += out[i].Bytes; end < 0 {
			return nil, formatError("the total size of the tensors overflows int64")
		}
	}
	return out, nil
}

// EncodeHeader returns all bytes that precede the data of a file, and the tensors in the order in
// which they must be written. The data starts at a multiple of align bytes. Tensors are sorted by
// descending element size, so that all elements are aligned, and then by name.
func EncodeHeader(tensors []Spec, metadata map[string]string, align int) ([]byte, []Info, error) {
	layout, err := layoutTensors(tensors)
	if err != nil {
		return nil, nil, err
	}
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, nil, formatError("metadata %q is not UTF-8", key)
		}
	}
	header := append(make([]byte, lengthBytes), '{')
	entry := func(name string, value any) {
		if len(header) > lengthBytes+1 {
			header = append(header, ',')
		}
		header = appendJSON(append(appendJSON(header, name), ':'), value)
	}
	if len(metadata) > 0 {
		entry(metadataKey, metadata)
	}
	for _, t := range layout {
		entry(t.Name, struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int64{t.Offset, t.Offset + t.Bytes}})
	}
	header = append(header, '}')
	header = append(header, bytes.Repeat([]byte{' '}, (align-len(header)%align)%align)...)
	length := len(header) - lengthBytes
	if length > MaxHeaderBytes {
		return nil, nil, &errkind.Fault{Match: ErrFormat,
			Reason: fmt.Sprintf("the header has %d bytes, but at most %d are allowed", length, MaxHeaderBytes),
			Hint:   "use fewer or shorter names, or several files"}
	}
	binary.LittleEndian.PutUint64(header, uint64(length))
	return header, layout, nil
}

// appendJSON appends the JSON encoding of v without HTML escapes.
func appendJSON(dst []byte, v any) []byte {
	out := bytes.NewBuffer(dst)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings and numbers can always be encoded
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
