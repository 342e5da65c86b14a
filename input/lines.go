package input

import (
	"bufio"
	"io"
)

// maxLineBytes is the largest length of a line, in bytes.
const maxLineBytes = 64 << 20

// Lines returns a dataset of the lines of text files, like tf.data.TextLineDataset. Each element is
// a string scalar without the line terminator ("\n" or "\r\n"). The files are read one after the
// other, in the given order. A line of more than 64 MiB is an error that matches [ErrCorrupt].
func Lines(paths []string, opts FileOptions) Dataset {
	return fromFiles(paths, opts, "lines", Leaf(TensorSpec{Kind: String}), isText,
		func(f *inputFile, offset int64) (recordReader, error) {
			r, err := f.reader(offset)
			if err != nil {
				return nil, err
			}
			return &lineReader{r, offset}, nil
		})
}

type lineReader struct {
	reader *bufio.Reader
	pos    int64
}

func (l *lineReader) offset() int64 { return l.pos }

func (l *lineReader) next() (Element, error) {
	var line []byte
	for {
		chunk, err := l.reader.ReadSlice('\n')
		line = append(line, chunk...)
		if err == nil {
			break
		}
		if len(line) > maxLineBytes {
			return Element{}, corruptError(nil, "read a binary file with FixedRecords or TFRecords",
				"a line of more than %d bytes", maxLineBytes)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF && len(line) > 0 {
			break
		}
		return Element{}, err
	}
	l.pos += int64(len(line))
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
		if n > 1 && line[n-2] == '\r' {
			line = line[:n-2]
		}
	}
	return Leaf(Scalar(string(line))), nil
}
