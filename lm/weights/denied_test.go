package weights_test

import (
	"io/fs"
	"testing/fstest"
)

// denied is a file system whose files can be listed but not opened.
type denied struct{ fstest.MapFS }

func (d denied) Open(name string) (fs.File, error) {
	if name == "." {
		return d.MapFS.Open(name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}
