package aot

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What a compiler says may have been made to move the cursor of who reads it.
func TestAnErrorIsShownWithoutControlCharacters(t *testing.T) {
	var stderr bytes.Buffer
	code := (&run{flags: &Flags{}, name: "program"}).fail(io.Discard, &stderr, errors.New("no\x1b[2J room"))
	assert.Equal(t, 1, code)
	assert.Equal(t, "program: no\\u001b[2J room\n", stderr.String())
}
