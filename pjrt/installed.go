package pjrt

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/pins"
)

// installCommand returns the shell command that installs a plugin of the given kind, such as "cpu".
func installCommand(kind string) string {
	return "go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install " + kind
}

// checkInstalled returns an error if the library at path was installed by the installer and was
// modified or truncated since. Other libraries are not checked.
//
// Hashing a library costs up to a second. The installer therefore records the size and the
// modification time of the verified library in a file next to the library. checkInstalled hashes the
// library only if this record is missing or does not match, and then tries to write a new record.
func checkInstalled(path string) error {
	pin, ok := findPin(path)
	if !ok {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return pluginError(path, PluginMissing, "", err)
	}
	if isVerified(path, pin, info) {
		return nil
	}
	found, err := files.SHA256(path)
	if err != nil {
		return pluginError(path, PluginMissing, "", err)
	}
	if found != pin.LibrarySHA256 {
		e := pluginError(path, PluginDamaged,
			fmt.Sprintf("it has %d bytes with the SHA-256 %s, not the library of %s %s with the SHA-256 %s",
				info.Size(), found, pin.Package, pin.Version, pin.LibrarySHA256), nil)
		e.Hint = fmt.Sprintf("run `%s` to install it again", installCommand(pin.Kind))
		return e
	}
	// A cache that cannot be written to costs the hash at each start.
	_ = files.Replace(path+pins.VerifiedSuffix, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, pin.VerifiedRecord(info))
		return err
	})
	return nil
}

// findPin returns the pinned version of a library in the installer's directory. The name of the
// library's directory is the hash of the Python wheel that contained the library.
func findPin(path string) (pins.Pin, bool) {
	for _, p := range pins.All() {
		if strings.HasSuffix(path, p.LibraryPath("/")) {
			return p, true
		}
	}
	return pins.Pin{}, false
}

// isVerified reports whether the size and the modification time of a library match the installer's
// record of the verified library.
func isVerified(path string, pin pins.Pin, info fs.FileInfo) bool {
	f, _, err := files.Open(path + pins.VerifiedSuffix)
	if err != nil {
		return false
	}
	defer f.Close()
	const maxRecordSize = 256
	text, err := io.ReadAll(io.LimitReader(f, maxRecordSize))
	recorded, want := strings.TrimSpace(string(text)), pin.VerifiedRecord(info)
	if info.ModTime().Nanosecond() == 0 { // an archive, such as a container's image, may keep seconds only
		recorded, _, _ = strings.Cut(recorded, ".")
		want, _, _ = strings.Cut(want, ".")
	}
	return err == nil && recorded == want
}
