package cache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Identity returns a text of all that a serialized program depends on in a client: the plugin's
// build, its API version, the platform's version, and for programs of the CPU its instruction set.
// Serialized programs load where it is equal, and may crash the process where it is not.
func Identity(client *pjrt.Client) (string, error) {
	return PluginIdentity(client.Plugin(), client.PlatformName(), client.PlatformVersion())
}

// PluginIdentity returns the [Identity] of a plugin's client that is not open, from the platform's
// name and version.
func PluginIdentity(plugin *pjrt.Plugin, platform, version string) (string, error) {
	build, err := buildID(plugin.Path())
	if err != nil {
		return "", fail("identify the plugin's build", err)
	}
	identity := fmt.Sprintf("%s; PJRT %v; build %s; %s", platform, plugin.APIVersion(), build, strings.Join(strings.Fields(version), " "))
	if platform == "cpu" {
		identity += "; " + runtime.GOARCH + " " + instructionSet()
	}
	return identity, nil
}

// buildID is the linker's build id of a library; of one without, a hash of its size and of pieces
// from all over it. Whole libraries are too large to be read for each program, and another build
// moves code everywhere.
func buildID(path string) (string, error) {
	file, info, err := files.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if f, err := elf.NewFile(file); err == nil {
		if section := f.Section(".note.gnu.build-id"); section != nil {
			note, err := section.Data()
			// A note is three sizes and a name of four bytes before its contents.
			if err == nil && len(note) > 16 && bytes.Equal(note[12:16], []byte("GNU\x00")) {
				return hex.EncodeToString(note[16:]), nil
			}
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%d", info.Size())
	piece := make([]byte, pieceSize)
	for i := range int64(pieces) {
		n, err := file.ReadAt(piece, max(info.Size()-pieceSize, 0)*i/(pieces-1))
		if err != nil && err != io.EOF {
			return "", err
		}
		hash.Write(piece[:n])
	}
	return "sampled:" + hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// The pieces that stand for a library without a build id.
const (
	pieces    = 256
	pieceSize = 16 << 10
)

// instructionSet hashes what the processor can do, which compilers of the CPU make use of; it is
// empty where the system does not tell.
func instructionSet() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name = strings.TrimSpace(name); name == "flags" || name == "Features" {
			flags := strings.Fields(value)
			slices.Sort(flags)
			sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
			return hex.EncodeToString(sum[:8])
		}
	}
	return ""
}
