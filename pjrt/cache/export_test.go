package cache

import (
	"math"
	"os"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Rewrite replaces the payload of an entry and signs the entry.
func Rewrite(c *Cache, path string, payload []byte) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, encodeEntry(c.signingKey, entryKey(data[len(magic):len(magic)+32]), payload), 0o600)
}

// Float32 decodes a little-endian float32.
func Float32(b []byte) float32 {
	return math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

// Decode decodes an entry with any key.
func Decode(data []byte) ([]byte, error) {
	var k entryKey
	if len(data) >= len(magic)+32 {
		k = entryKey(data[len(magic) : len(magic)+32])
	}
	return decodeEntry([]byte("the tests' key"), k, data)
}

// Encode encodes an entry with a fixed key.
func Encode(payload []byte) []byte {
	return encodeEntry([]byte("the tests' key"), entryKey{1}, payload)
}

// IdentityOf returns the result of Cache.clientIdentity.
func IdentityOf(c *Cache, client *pjrt.Client) (string, error) { return c.clientIdentity(client) }
