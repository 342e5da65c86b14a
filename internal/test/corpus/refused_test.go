package corpus_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refused adds the operation to a compile error. It finds the operation by the position in the
// message.
func refused(err error, text []byte) error {
	at := place.FindStringSubmatch(err.Error())
	if at == nil {
		return err
	}
	lines := bytes.Split(text, []byte("\n"))
	i, wrong := strconv.Atoi(at[1])
	if wrong != nil || i < 1 || i > len(lines) {
		return err
	}
	line := strings.TrimSpace(string(lines[i-1]))
	if len(line) > 400 {
		line = line[:400] + " ..."
	}
	return fmt.Errorf("%w\noperation, line %d of %d: %s", err, i, len(lines), line)
}

// place matches a position in a compiler's message, such as <unknown>:12:5.
var place = regexp.MustCompile(`:(\d+):\d+\)?:`)

func TestAFailureNamesTheOperationThatWasRefused(t *testing.T) {
	text := []byte("module @m {\n  func.func @main(%a: tensor<1x1xf32>) -> tensor<1x1xf32> {\n    %0 = stablehlo.add " +
		"%a, %a : tensor<1x1xf32>\n    return %0 : tensor<1x1xf32>\n  }\n}\n")
	err := refused(errors.New("<unknown>:3:10: error: not this"), text)
	require.ErrorContains(t, err, "not this")
	require.ErrorContains(t, err, "line 3 of 7: %0 = stablehlo.add %a, %a")
	require.EqualError(t, refused(errors.New("no place"), text), "no place")
}
