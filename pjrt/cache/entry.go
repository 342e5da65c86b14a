package cache

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// magic is the first line of every entry. Its number is the version of the format.
const magic = "tpustrategy program 4\n"

const headerSize = len(magic) + 2*sha256.Size + 8

// errCorrupt is matched by errors for damaged entries.
var errCorrupt = errkind.New(errkind.DataLossError, "corrupt entry")

// entryKey is the hash that identifies a cached program.
type entryKey [sha256.Size]byte

// newEntryKey hashes everything that a compiled program depends on. All processes of a TPU slice
// compute the same key, because they have the same devices.
func newEntryKey(identity string, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) entryKey {
	opts = opts.WithPlatformDefaults(client.PlatformName())
	hash := sha256.New()
	// The length of each part makes the encoding unique.
	text := func(s string) {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(s)))
		hash.Write(size[:])
		io.WriteString(hash, s)
	}
	text(magic)
	text(identity)
	for _, device := range client.Devices() {
		attributes := device.Attributes()
		text(fmt.Sprintf("device %d of %d, %s, %v, %v", device.ID(), device.ProcessIndex(), device.Kind(),
			attributes["coords"], attributes["core_on_chip"]))
	}
	text(fmt.Sprintf("%d x %d, %v, spmd %t, shardy %t", opts.Replicas, opts.Partitions, opts.DeviceAssignment,
		opts.SPMD, opts.Shardy))
	for _, name := range slices.Sorted(maps.Keys(opts.Overrides)) {
		text(fmt.Sprintf("%s = %T %v", name, opts.Overrides[name], opts.Overrides[name]))
	}
	text(program.Format)
	text(string(program.Code))
	return entryKey(hash.Sum(nil))
}

// hmacSHA256 returns the HMAC of the concatenated parts. All parts except the last must have fixed
// sizes, because their lengths are not hashed.
func hmacSHA256(signingKey []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, signingKey)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

func signEntry(signingKey []byte, key entryKey, payload []byte) []byte {
	return hmacSHA256(signingKey, []byte(magic), key[:], binary.LittleEndian.AppendUint64(nil, uint64(len(payload))),
		payload)
}

// encodeEntry returns the contents of the file of an entry: the header and the serialized program.
func encodeEntry(signingKey []byte, key entryKey, payload []byte) []byte {
	out := make([]byte, 0, headerSize+len(payload))
	out = append(out, magic...)
	out = append(out, key[:]...)
	out = append(out, signEntry(signingKey, key, payload)...)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(payload)))
	return append(out, payload...)
}

// decodeEntry verifies the contents of an entry's file and returns the serialized program.
func decodeEntry(signingKey []byte, key entryKey, data []byte) ([]byte, error) {
	if len(data) < headerSize {
		return nil, fmt.Errorf("%w: it has only %d bytes", errCorrupt, len(data))
	}
	if string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it is not a program of this version", errCorrupt)
	}
	rest := data[len(magic):]
	if !bytes.Equal(rest[:sha256.Size], key[:]) {
		return nil, fmt.Errorf("%w: it belongs to another program", errCorrupt)
	}
	payload := data[headerSize:]
	if n := binary.LittleEndian.Uint64(rest[2*sha256.Size:]); n != uint64(len(payload)) {
		return nil, fmt.Errorf("%w: it has %d of %d bytes", errCorrupt, len(payload), n)
	}
	if !hmac.Equal(rest[sha256.Size:2*sha256.Size], signEntry(signingKey, key, payload)) {
		return nil, fmt.Errorf("%w: its signature is wrong, so it was modified or signed with another key", errCorrupt)
	}
	return payload, nil
}

// replaceFile creates or replaces a file atomically.
func replaceFile(path string, data []byte) error {
	tempPath, err := createTemp(filepath.Dir(path), data)
	if err != nil {
		return err
	}
	if err := os.Rename(tempPath, path); err != nil {
		return errors.Join(err, os.Remove(tempPath))
	}
	return nil
}

// createTemp writes a new temporary file that only its owner can access, and returns its path.
func createTemp(dir string, data []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

const tempPattern = ".writing-*"
