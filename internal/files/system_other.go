//go:build !unix

package files

import "io/fs"

// These flags do not exist on this operating system.
const noFollow, nonBlock = 0, 0

func isDiskFull(error) bool { return false }

func fileOwner(fs.FileInfo) (user, group int, ok bool) { return 0, 0, false }
