//go:build !linux

package storage

import (
	"errors"
	"os"
)

func reserveSpace(*os.File, int64) error { return nil }

func openDirect(string) *os.File { return nil }

func isDirectUnsupported(error) bool { return false }

func renameExclusive(string, string) error { return errors.ErrUnsupported }
