//go:build !unix

package files

import "io/fs"

// ownerOf does not know owners where the system has none.
func ownerOf(fs.FileInfo) (user, group int, ok bool) { return 0, 0, false }
