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

// magic begins every entry; the number is the version of the form.
const magic = "tpustrategy program 4\n"

// headerSize is that of an entry's header: the magic, its key, the signature of all else, and the
// length of the contents.
const headerSize = len(magic) + 2*sha256.Size + 8

// errCorrupt is matched by what is wrong with a damaged entry.
var errCorrupt = errkind.New(errkind.DataLossError, "corrupt entry")

// key is what an entry is found by.
type key [sha256.Size]byte

// keyOf hashes everything that a compiled program depends on. All processes of a slice have the same
// devices, and one program.
func keyOf(identity string, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) key {
	opts = opts.On(client.PlatformName())
	hash := sha256.New()
	// Every part is written with its length, so that none runs into the next.
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
		text(fmt.Sprintf("device %d of %d, %s, %v, %v", device.ID(), device.ProcessIndex(), device.Kind(), attributes["coords"], attributes["core_on_chip"]))
	}
	text(fmt.Sprintf("%d x %d, %v, spmd %t, shardy %t", opts.Replicas, opts.Partitions, opts.DeviceAssignment, opts.SPMD, opts.Shardy))
	for _, name := range slices.Sorted(maps.Keys(opts.Overrides)) {
		text(fmt.Sprintf("%s = %T %v", name, opts.Overrides[name], opts.Overrides[name]))
	}
	text(program.Format)
	text(string(program.Code))
	return key(hash.Sum(nil))
}

// sign is the HMAC of the parts, which have fixed sizes but for the last.
func sign(signing []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, signing)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// signature is that of an entry.
func signature(signing []byte, k key, payload []byte) []byte {
	return sign(signing, []byte(magic), k[:], binary.LittleEndian.AppendUint64(nil, uint64(len(payload))), payload)
}

// encode is an entry's contents.
func encode(signing []byte, k key, payload []byte) []byte {
	out := make([]byte, 0, headerSize+len(payload))
	out = append(out, magic...)
	out = append(out, k[:]...)
	out = append(out, signature(signing, k, payload)...)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(payload)))
	return append(out, payload...)
}

// decode checks an entry's contents and returns the program.
func decode(signing []byte, k key, data []byte) ([]byte, error) {
	if len(data) < headerSize {
		return nil, fmt.Errorf("%w: it ends after %d bytes", errCorrupt, len(data))
	}
	if string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it is no program of this version", errCorrupt)
	}
	rest := data[len(magic):]
	if !bytes.Equal(rest[:sha256.Size], k[:]) {
		return nil, fmt.Errorf("%w: it is another program's", errCorrupt)
	}
	payload := data[headerSize:]
	if n := binary.LittleEndian.Uint64(rest[2*sha256.Size:]); n != uint64(len(payload)) {
		return nil, fmt.Errorf("%w: %d bytes of %d", errCorrupt, len(payload), n)
	}
	if !hmac.Equal(rest[sha256.Size:2*sha256.Size], signature(signing, k, payload)) {
		return nil, fmt.Errorf("%w: its signature is wrong: it was changed, or signed with another key", errCorrupt)
	}
	return payload, nil
}

// write makes a file appear whole or not at all.
func write(path string, data []byte) error {
	beside, err := temporary(filepath.Dir(path), data)
	if err != nil {
		return err
	}
	if err := os.Rename(beside, path); err != nil {
		return errors.Join(err, os.Remove(beside))
	}
	return nil
}

// temporary writes a file for its owner alone, under a name that says that it is being written.
func temporary(folder string, data []byte) (path string, err error) {
	f, err := os.CreateTemp(folder, tempPattern)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// tempPattern names files that are being written.
const tempPattern = ".writing-*"
