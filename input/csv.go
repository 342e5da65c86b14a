package input

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// Column selects a column of a CSV file and the kind of its values.
type Column struct {
	Name string // key in the element and, if the file has a header, the column's title; must be unique
	// Index is the column's number, from 0. It is ignored if the files have a header, because the
	// column is then found by its title.
	Index   int
	Kind    Kind
	Default string // value of an empty field; with "", an empty field is an error for numbers and bools
}

// CSVOptions describes CSV files in the format of RFC 4180, including quoted fields.
type CSVOptions struct {
	FileOptions
	Columns []Column // at least one
	Header  bool     // the first record of every file contains the column titles
	Comma   rune     // 0: a comma
}

// byteOrderMark is the optional first character of a UTF-8 file.
const byteOrderMark = "\ufeff"

// CSV returns a dataset of the records of CSV files, like an unbatched
// tf.data.experimental.make_csv_dataset. Each element is a dictionary from column name to a scalar
// of the column's kind. Empty lines and a byte order mark are skipped. The error matches
// [ErrCorrupt] if a field cannot be parsed, if a record has more or fewer fields than the first
// record, or if a title is missing.
func CSV(paths []string, opts CSVOptions) Dataset {
	opts.Columns = slices.Clone(opts.Columns)
	spec := map[string]Spec{}
	for _, c := range opts.Columns {
		if _, twice := spec[c.Name]; twice || c.Name == "" {
			return invalidDataset("csv", "give every column a name of its own", "column name %q is empty or there twice", c.Name)
		}
		if !c.Kind.Valid() || c.Index < 0 {
			return invalidDataset("csv", "give a kind other than Invalid and an index from 0",
				"column %q has kind %v and index %d", c.Name, c.Kind, c.Index)
		}
		spec[c.Name] = Leaf(TensorSpec{Kind: c.Kind})
	}
	if len(spec) == 0 {
		return invalidDataset("csv", "list those to read in CSVOptions.Columns", "no columns are chosen")
	}
	return fromFiles(paths, opts.FileOptions, "csv", Dict(spec), isText,
		func(f *inputFile, offset int64) (recordReader, error) {
			return openCSV(f, offset, opts)
		})
}

type csvReader struct {
	reader       *csv.Reader
	startOffset  int64 // offset in the file at which reader started
	columns      []Column
	fieldIndices []int // field index of each column
	// mayBeHeader is true if the file has no header and was opened at its start.
	mayBeHeader bool
}

func openCSV(f *inputFile, start int64, opts CSVOptions) (recordReader, error) {
	c := &csvReader{columns: opts.Columns, fieldIndices: make([]int, len(opts.Columns))}
	for i, col := range opts.Columns {
		c.fieldIndices[i] = col.Index
	}
	fields := 0
	open := func(offset int64) error {
		r, err := f.reader(offset)
		if err != nil {
			return err
		}
		if mark, _ := r.Peek(len(byteOrderMark)); offset == 0 && string(mark) == byteOrderMark {
			offset += int64(len(byteOrderMark))
			if _, err := r.Discard(len(byteOrderMark)); err != nil {
				return err
			}
		}
		c.reader, c.startOffset = csv.NewReader(r), offset
		c.reader.ReuseRecord, c.reader.FieldsPerRecord = true, fields
		if opts.Comma != 0 {
			c.reader.Comma = opts.Comma
		}
		return nil
	}
	if opts.Header {
		if err := open(0); err != nil {
			return nil, err
		}
		titles, err := c.reader.Read()
		if err == io.EOF {
			return c, nil // an empty file has no records
		}
		if err != nil {
			return nil, corruptError(err, "", "header")
		}
		for i, col := range opts.Columns {
			if c.fieldIndices[i] = slices.Index(titles, col.Name); c.fieldIndices[i] < 0 {
				return nil, corruptError(nil, "give a Column the name of a title", "no column has the title %q, there are %q",
					col.Name, titles)
			}
		}
		fields = len(titles)
		if start <= c.offset() {
			return c, nil
		}
	}
	c.mayBeHeader = !opts.Header && start == 0
	return c, open(start)
}

func (c *csvReader) offset() int64 { return c.startOffset + c.reader.InputOffset() }

func (c *csvReader) next() (Element, error) {
	hint := ""
	if c.mayBeHeader && c.reader.InputOffset() == 0 {
		hint = "if the first record holds the titles, set CSVOptions.Header"
	}
	record, err := c.reader.Read()
	if err == io.EOF {
		return Element{}, io.EOF
	}
	if err != nil {
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			err = corruptError(err, "", "")
		}
		return Element{}, err
	}
	out := make(map[string]Element, len(c.columns))
	for i, col := range c.columns {
		if c.fieldIndices[i] >= len(record) {
			return Element{}, corruptError(nil, "give a Column an Index below the number of fields",
				"column %q is field %d, the record has %d fields", col.Name, c.fieldIndices[i], len(record))
		}
		field := record[c.fieldIndices[i]]
		if field == "" {
			field = col.Default
		}
		t, err := parseScalar(col.Kind, field)
		if err != nil {
			return Element{}, corruptError(err, hint, "column %q", col.Name)
		}
		out[col.Name] = Leaf(t)
	}
	return Dict(out), nil
}

// parseScalar parses text as a value of the given kind. It ignores spaces around numbers and bools.
func parseScalar(kind Kind, text string) (Tensor, error) {
	if kind == String {
		return Scalar(strings.Clone(text)), nil
	}
	text = strings.TrimSpace(text)
	bits := kind.Size() * 8
	switch kind {
	case Bool:
		v, err := strconv.ParseBool(text)
		return Scalar(v), err
	case Int8, Int16, Int32, Int64:
		v, err := strconv.ParseInt(text, 10, bits)
		switch kind {
		case Int8:
			return Scalar(int8(v)), err
		case Int16:
			return Scalar(int16(v)), err
		case Int32:
			return Scalar(int32(v)), err
		}
		return Scalar(v), err
	case Uint8, Uint16, Uint32, Uint64:
		v, err := strconv.ParseUint(text, 10, bits)
		switch kind {
		case Uint8:
			return Scalar(uint8(v)), err
		case Uint16:
			return Scalar(uint16(v)), err
		case Uint32:
			return Scalar(uint32(v)), err
		}
		return Scalar(v), err
	case Complex64:
		v, err := strconv.ParseComplex(text, 64)
		return Scalar(complex64(v)), err
	case Complex128:
		v, err := strconv.ParseComplex(text, 128)
		return Scalar(v), err
	case Float64:
		v, err := strconv.ParseFloat(text, 64)
		return Scalar(v), err
	}
	v, err := strconv.ParseFloat(text, 32)
	switch kind {
	case Float16:
		return Scalar(float16.FromFloat32(float32(v))), err
	case BFloat16:
		return Scalar(bfloat16.FromFloat32(float32(v))), err
	}
	return Scalar(float32(v)), err
}
