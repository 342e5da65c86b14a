package aot

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The output of a compiler could contain control characters that move the reader's cursor.
func TestAnErrorIsShownWithoutControlCharacters(t *testing.T) {
	var stderr bytes.Buffer
	code := (&compileRun{flags: &Flags{}, name: "program"}).printError(io.Discard, &stderr, errors.New("no\x1b[2J room"))
	assert.Equal(t, 1, code)
	assert.Equal(t, "program: no\\u001b[2J room\n", stderr.String())
}
