package pjrt

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
)

// Identity returns a description of everything in the client that a serialized program depends on:
// the build of the plugin, its API version, the platform version and, on CPUs, the instruction set.
// Loading a program that was serialized by a client with another identity may crash the process.
func (c *Client) Identity() (string, error) {
	if c.clientHandle == nil {
		return "", zeroValueError("identify the plugin's build", "client", "NewClient")
	}
	return c.Plugin().Identity(c.PlatformName(), c.PlatformVersion())
}

// Identity returns the [Client.Identity] of clients of the plugin that have this platform name and
// version. It does not open a client.
func (p *Plugin) Identity(platform, version string) (string, error) {
	build, err := buildID(p.Path())
	if err != nil {
		return "", opError("identify the plugin's build", "", err)
	}
	identity := fmt.Sprintf("%s; PJRT %v; build %s; %s", platform, p.APIVersion(), build,
		strings.Join(strings.Fields(version), " "))
	if platform == "cpu" {
		identity += "; " + runtime.GOARCH + " " + instructionSet()
	}
	return identity, nil
}

// buildID returns the linker's build id of a library. If the library has no build id, buildID returns
// a hash of the size and of samples of the contents, because hashing a large library takes too long.
func buildID(path string) (string, error) {
	file, info, err := files.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if f, err := elf.NewFile(file); err == nil {
		if section := f.Section(".note.gnu.build-id"); section != nil {
			note, err := section.Data()
			// A note starts with three sizes and a name of four bytes.
			if err == nil && len(note) > 16 && bytes.Equal(note[12:16], []byte("GNU\x00")) {
				return hex.EncodeToString(note[16:]), nil
			}
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%d", info.Size())
	piece := make([]byte, sampleSize)
	for i := range int64(numSamples) {
		n, err := file.ReadAt(piece, max(info.Size()-sampleSize, 0)*i/(numSamples-1))
		if err != nil && err != io.EOF {
			return "", err
		}
		hash.Write(piece[:n])
	}
	return "sampled:" + hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

const (
	numSamples = 256
	sampleSize = 16 << 10
)

// instructionSet returns a hash of the features of the processor, on which code from CPU compilers
// depends. It returns an empty string if the features are unknown.
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
