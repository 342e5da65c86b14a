package input

import (
	"bufio"
	"io"
)

// maxLine is the largest length of a line, in bytes.
const maxLine = 64 << 20

// Lines returns a dataset of the lines of text files, like tf.data.TextLineDataset. Each element is
// a string scalar without the line terminator ("\n" or "\r\n"). The files are read one after the
// other, in the given order. A line of more than 64 MiB is an error that matches [ErrCorrupt].
func Lines(paths []string, opts FileOptions) Dataset {
	return fromFiles(paths, opts, "lines", Leaf(TensorSpec{Kind: String}), isText, func(f *openFile, at int64) (recordReader, error) {
		r, err := f.from(at)
		if err != nil {
			return nil, err
		}
		return &lineReader{r, at}, nil
	})
}

type lineReader struct {
	r  *bufio.Reader
	at int64
}

func (l *lineReader) offset() int64 { return l.at }

func (l *lineReader) next() (Element, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if len(line) > maxLine {
			return Element{}, corrupt(nil, "read a binary file with FixedRecords or TFRecords", "a line of more than %d bytes", maxLine)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF && len(line) > 0 {
			break
		}
		return Element{}, err
	}
	l.at += int64(len(line))
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
		if n > 1 && line[n-2] == '\r' {
			line = line[:n-2]
		}
	}
	return Leaf(Scalar(string(line))), nil
}
