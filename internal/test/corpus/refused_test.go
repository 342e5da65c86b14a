package corpus_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/screen"
)

// kept says what keeps a program of the corpus from the compiler of a platform.
func kept(text []byte, platform string) error {
	_, err := screen.MLIR(text, screen.Options{Shardy: true, Host: platform == "cpu", TPU: platform == "tpu", Replicas: 1, Partitions: devices})
	return err
}

// refused adds to the error of a program the operation that it is about: the one up to
// which the program passes, if it was refused before the compiler, otherwise the one at
// the place that the compiler names.
func refused(err error, platform string, text []byte) error {
	lines := bytes.SplitAfter(text, []byte("\n"))
	show := func(i int) error {
		line := strings.TrimSpace(string(lines[i]))
		if len(line) > 400 {
			line = line[:400] + " ..."
		}
		return fmt.Errorf("%w\noperation, line %d of %d: %s", err, i+1, len(lines), line)
	}
	i := sort.Search(len(lines), func(i int) bool {
		wrong := kept(bytes.Join(lines[:i+1], nil), platform)
		return wrong != nil && strings.Contains(err.Error(), wrong.Error())
	})
	if i < len(lines) {
		return show(i)
	}
	if at := place.FindStringSubmatch(err.Error()); at != nil {
		if i, wrong := strconv.Atoi(at[1]); wrong == nil && i >= 1 && i <= len(lines) {
			return show(i - 1)
		}
	}
	return err
}

// place is a line in a compiler's message, as in <unknown>:12:5: error.
var place = regexp.MustCompile(`:(\d+):\d+\)?:`)

func TestAFailureNamesTheOperationThatWasRefused(t *testing.T) {
	text := []byte("module @m {\n  func.func @main(%a: tensor<1x1xf32>) -> tensor<1x1xf32> {\n" +
		"    %0 = stablehlo.add %a, %a : tensor<1x1xf32>\n" +
		"    %1 = stablehlo.convolution(%0, %a) dim_numbers = [9999999, f]x[i, o]->[b, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>\n" +
		"    return %1 : tensor<1x1xf32>\n  }\n}\n")
	err := kept(text, "tpu")
	require.Error(t, err)
	require.ErrorContains(t, refused(err, "tpu", text), "line 4 of 8: %1 = stablehlo.convolution")
	err = refused(errors.New("<unknown>:3:10: error: not this"), "cpu", text)
	require.ErrorContains(t, err, "line 3 of 8: %0 = stablehlo.add %a, %a")
}
