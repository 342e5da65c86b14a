package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Trust specifies the users whose files are trusted to contain code: root, User and Owners.
type Trust struct {
	// Owners are additional user ids.
	Owners []int
	// User is the user id of the process, and Groups are its group ids. [Trust.WithProcess] sets them.
	User   int
	Groups []int
}

// WithProcess returns t with User and Groups set to the user and the groups of this process.
func (t Trust) WithProcess() Trust {
	t.User = os.Geteuid()
	t.Groups = []int{os.Getegid()}
	if more, err := os.Getgroups(); err == nil {
		t.Groups = append(t.Groups, more...)
	}
	return t
}

// minUserGroupID is the first id of ordinary groups. Smaller ids are system groups, such as root
// and staff, whose members are administrators.
const minUserGroupID = 1000

// maxLinks is the maximum number of links in a path, as in the kernel.
const maxLinks = 40

// CheckFile checks that only trusted users can modify the file, the directories in its path and the
// links to it. It returns the absolute path without links. Directories with the sticky bit, such as
// /tmp, are accepted.
//
// A group may have write permission if the process is a member of the group or the group is a
// system group.
func (t Trust) CheckFile(path string) (string, error) {
	realPath, info, err := t.resolve(path)
	if err != nil {
		return "", err
	}
	if err := CheckRegular(realPath, info); err != nil {
		return "", err
	}
	return realPath, nil
}

// CheckDirectory is like CheckFile, but for a directory. The directory itself must not be writable
// by everyone, but its parents may be, such as /tmp. If shared is true, CheckDirectory only
// resolves links, and other users may write to the directory.
func (t Trust) CheckDirectory(path string, shared bool) (real string, err error) {
	var info fs.FileInfo
	if !shared {
		real, info, err = t.resolve(path)
	} else if real, err = filepath.EvalSymlinks(path); err == nil {
		info, err = os.Stat(real)
	}
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", &Error{Path: real, Reason: NotDirectory, Found: DescribeType(info.Mode())}
	case !shared && info.Mode().Perm()&0o002 != 0:
		return "", writableError(real, info)
	}
	return real, nil
}

// resolve resolves the links in a path, and checks the owner and mode of each file and directory in it.
func (t Trust) resolve(path string) (real string, info fs.FileInfo, err error) {
	if err := CheckLocal(path); err != nil {
		return "", nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", nil, err
	}
	names, links := splitPath(path), 0
	real = string(filepath.Separator)
	if info, err = os.Lstat(real); err != nil {
		return "", nil, err
	}
	if err := t.check(real, info); err != nil {
		return "", nil, err
	}
	for len(names) > 0 {
		next := filepath.Join(real, names[0])
		names = names[1:]
		if info, err = os.Lstat(next); err != nil {
			return "", nil, err
		}
		if err := t.check(next, info); err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if filepath.IsAbs(target) {
			real = string(filepath.Separator)
		}
		names = append(splitPath(target), names...)
	}
	if info, err = os.Lstat(real); err != nil { // the last name may have been ".."
		return "", nil, err
	}
	return real, info, nil
}

func splitPath(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)),
		func(name string) bool { return name == "" || name == "." })
}

// check returns an error if an untrusted user could modify the file or directory at path.
func (t Trust) check(path string, info fs.FileInfo) error {
	user, group, ok := fileOwner(info)
	if !ok {
		return nil // unknown on this operating system
	}
	if user != 0 && user != t.User && !slices.Contains(t.Owners, user) {
		return &Error{Path: path, Reason: OtherOwner,
			Found: fmt.Sprintf("owner uid %d, mode %#o; this process is uid %d", user, info.Mode().Perm(), t.User),
			Hint:  fmt.Sprintf("run chown %d %s, or copy the file to your own directory", t.User, path)}
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil // a link has no mode
	}
	if info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		return nil // other users cannot replace the next file of the path
	}
	if info.Mode().Perm()&0o002 != 0 {
		return writableError(path, info)
	}
	if info.Mode().Perm()&0o020 != 0 && group >= minUserGroupID && !slices.Contains(t.Groups, group) && group != t.User {
		return &Error{Path: path, Reason: OthersCanWrite,
			Found: fmt.Sprintf("mode %#o, owner uid %d, group gid %d, which this process is not in", info.Mode().Perm(),
				user, group),
			Hint: "run chmod g-w " + path}
	}
	return nil
}

// writableError returns the error for a file or directory that everyone can write to.
func writableError(path string, info fs.FileInfo) error {
	found := fmt.Sprintf("mode %#o", info.Mode().Perm())
	if user, _, ok := fileOwner(info); ok {
		found += fmt.Sprintf(", owner uid %d", user)
	}
	return &Error{Path: path, Reason: OthersCanWrite, Found: found, Hint: "run chmod o-w " + path}
}
