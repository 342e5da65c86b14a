//go:build unix

package files

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user and the group of a file.
func ownerOf(info fs.FileInfo) (user, group int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}
