//go:build !unix

package files

import "io/fs"

// What the system does not have is left out.
const noFollow, nonBlock = 0, 0

func isFull(error) bool { return false }

func ownerOf(fs.FileInfo) (user, group int, ok bool) { return 0, 0, false }
