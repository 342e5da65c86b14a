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

// Trust says whose files are trusted with code: those of root, of the process's own user, and of
// Owners.
type Trust struct {
	// Owners are further user ids.
	Owners []int
	// User is the id of the process's user, and Groups those of its groups; [Trust.OfProcess] fills
	// them in.
	User   int
	Groups []int
}

// OfProcess returns the trust of this process.
func (t Trust) OfProcess() Trust {
	t.User = os.Geteuid()
	t.Groups = []int{os.Getegid()}
	if more, err := os.Getgroups(); err == nil {
		t.Groups = append(t.Groups, more...)
	}
	return t
}

// systemGroups are the group ids below which a group is the system's own (root, staff): its members
// are administrators.
const systemGroups = 1000

// maxLinks bounds the links on the way to a file, as the kernel does.
const maxLinks = 40

// File checks that none but trusted users can change the file that path names: the file, every
// folder on the way to it, and every link that leads there. It returns the file's absolute path
// without links. A folder of the kind of /tmp, where everybody may add files and nobody may take
// away others', is passed.
//
// A group that may write is taken if the process is in it, or if it is one of the system's.
func (t Trust) File(path string) (string, error) {
	real, info, err := t.walk(path)
	if err != nil {
		return "", err
	}
	if err := Regular(real, info); err != nil {
		return "", err
	}
	return real, nil
}

// Directory checks a directory as File checks a file. A directory of the kind of /tmp is refused
// itself. If shared is set, others may write to the directory.
func (t Trust) Directory(path string, shared bool) (real string, err error) {
	var info fs.FileInfo
	if !shared {
		real, info, err = t.walk(path)
	} else if real, err = filepath.EvalSymlinks(path); err == nil {
		info, err = os.Stat(real)
	}
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", &Error{Path: real, Reason: NotDirectory, Found: Kind(info.Mode())}
	case !shared && info.Mode().Perm()&0o002 != 0:
		return "", writable(real, info)
	}
	return real, nil
}

// walk follows a path one name at a time and looks at each.
func (t Trust) walk(path string) (real string, info fs.FileInfo, err error) {
	if err := Local(path); err != nil {
		return "", nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", nil, err
	}
	names, links := split(path), 0
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
		names = append(split(target), names...)
	}
	if info, err = os.Lstat(real); err != nil { // the last name may have been ".."
		return "", nil, err
	}
	return real, info, nil
}

func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool { return name == "" || name == "." })
}

// check looks at one file or folder.
func (t Trust) check(path string, info fs.FileInfo) error {
	user, group, ok := ownerOf(info)
	if !ok {
		return nil // the system does not tell
	}
	if user != 0 && user != t.User && !slices.Contains(t.Owners, user) {
		return &Error{Path: path, Reason: Foreign, Found: fmt.Sprintf("owner uid %d, mode %#o; this process is uid %d", user, info.Mode().Perm(), t.User),
			Hint: fmt.Sprintf("run chown %d %s, or copy the file to a folder of your own", t.User, path)}
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil // a link has no mode
	}
	if info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		return nil // others cannot take away what is checked next
	}
	if info.Mode().Perm()&0o002 != 0 {
		return writable(path, info)
	}
	if info.Mode().Perm()&0o020 != 0 && group >= systemGroups && !slices.Contains(t.Groups, group) && group != t.User {
		return &Error{Path: path, Reason: Writable, Found: fmt.Sprintf("mode %#o, owner uid %d, group gid %d, which this process is not in", info.Mode().Perm(), user, group),
			Hint: "run chmod g-w " + path}
	}
	return nil
}

// writable is the error of what everybody may write to.
func writable(path string, info fs.FileInfo) error {
	found := fmt.Sprintf("mode %#o", info.Mode().Perm())
	if user, _, ok := ownerOf(info); ok {
		found += fmt.Sprintf(", owner uid %d", user)
	}
	return &Error{Path: path, Reason: Writable, Found: found, Hint: "run chmod o-w " + path}
}
