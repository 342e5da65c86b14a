package cache_test

import (
	"bytes"
	"testing"

	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

func floatAt(b []byte) float32 { return cache.Float32(b) }

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(cache.Encode(nil))
	f.Add(cache.Encode([]byte("a program")))
	f.Add(append(cache.Encode([]byte("a program")), 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, err := cache.Decode(data)
		if err == nil && !bytes.HasSuffix(data, payload) {
			t.Fatal("the contents are not those of the entry")
		}
	})
}
