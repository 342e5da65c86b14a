//go:build !linux

package storage

import (
	"errors"
	"os"
)

func reserve(*os.File, int64) error { return nil }

func openDirect(string) *os.File { return nil }

func refused(error) bool { return false }

func renameExclusive(string, string) error { return errors.ErrUnsupported }
