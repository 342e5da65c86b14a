package curve

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Save writes the plot to a file, in the form that the path's extension names: .svg, .png or .html.
// The file is written whole or not at all: what stood there stays as it is until the new picture is
// on the disk. The error of a full disk is a ResourceExhaustedError.
func (p Plot) Save(path string) error {
	write, err := p.form(path)
	if err != nil {
		return err
	}
	data, err := write()
	if err != nil {
		return err
	}
	err = files.Replace(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return &errkind.Fault{Op: "curve: save", Err: err}
	}
	return nil
}

// CheckPath returns the error that [Plot.Save] would return for a path whose extension it does not
// know, before there is anything to draw.
func CheckPath(path string) error {
	_, err := Plot{}.form(path)
	return err
}

func (p Plot) form(path string) (func() ([]byte, error), error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg":
		return p.SVG, nil
	case ".png":
		return p.PNG, nil
	case ".html", ".htm":
		return p.HTML, nil
	}
	return nil, &errkind.Fault{Op: "curve: save", Subject: path, Class: errkind.ValueError,
		Reason: "it is not clear which form the picture shall have", Hint: "give a path that ends in .svg, .png or .html"}
}
