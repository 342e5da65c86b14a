package pjrt

import (
	"bytes"
	"testing"
)

func FuzzUnseal(f *testing.F) {
	f.Add(seal([]byte("payload")))
	f.Add([]byte(serialMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := unseal(b)
		if err == nil && !bytes.Equal(seal(payload), b) {
			t.Fatal("accepted what seal did not write")
		}
	})
}
