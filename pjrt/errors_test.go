package pjrt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestWrappedErrorsMatchCodes(t *testing.T) {
	err := fmt.Errorf("outer: %w", &pjrt.Error{Op: "compile", Code: pjrt.ResourceExhausted, Plugin: "/x/libtpu.so",
		Msg: "no room"})
	require.ErrorIs(t, err, pjrt.ResourceExhausted)
	assert.NotErrorIs(t, err, pjrt.Internal)
	assert.NotErrorIs(t, err, errors.ErrUnsupported)
	assert.Equal(t, "outer: pjrt: compile: RESOURCE_EXHAUSTED: no room (libtpu.so)", err.Error())
	require.ErrorIs(t, &pjrt.Error{Code: pjrt.Unimplemented}, errors.ErrUnsupported)
	require.ErrorIs(t, pjrt.Unimplemented, errors.ErrUnsupported)
	assert.Equal(t, "CODE_77", pjrt.Code(77).Error())
	assert.Equal(t, "PJRT_Error_Code_CODE_-1", pjrt.Code(-1).String())
	require.ErrorIs(t, &pjrt.ArgumentError{Err: pjrt.ErrDonated}, pjrt.ErrDonated)
}

// TestErrorTexts checks that the texts contain operation, subject, reason, cause and hint, and that
// no part is repeated.
func TestErrorTexts(t *testing.T) {
	url := &pjrt.PathError{Path: "gs://b/x.so", Reason: files.IsURL, Hint: "copy it"}
	for want, err := range map[string]error{
		"pjrt: compile: UNIMPLEMENTED: no slot (x.so); install a plugin for PJRT 0.75 or newer": &pjrt.Error{Op: "compile",
			Code: pjrt.Unimplemented, Plugin: "/x.so", Msg: "no slot", NeedsMinor: 75},
		"pjrt: execute: result 2 of device 1: it is live: busy; close it": &pjrt.ArgumentError{IsResult: true, Device: 1,
			Index: 2, Reason: "it is live", Err: errors.New("busy"), Hint: "close it"},
		"pjrt: execute: argument 2: x": &pjrt.ArgumentError{Device: -1, Index: 2,
			Reason: "x"},
		"pjrt: execute: arguments of device 1: x": &pjrt.ArgumentError{Device: 1, Index: -1,
			Reason: "x"},
		"pjrt: execute: arguments: x": &pjrt.ArgumentError{Device: -1, Index: -1,
			Reason: "x"},
		"pjrt: execute: argument 0 of device 0: the object is closed": &pjrt.ArgumentError{Err: pjrt.ErrClosed},
		"pjrt: close client: still open: 2 buffers, 1 calls": &pjrt.InUseError{Op: "close client",
			Buffers: 2, Calls: 1},
		"pjrt: compile: Replicas: -1 is too few; give one": &pjrt.CompileError{Field: "Replicas",
			Reason: "-1 is too few", Hint: "give one"},
		"pjrt: plugin x.so: truncated: at byte 3; install it again": &pjrt.PluginError{Path: "x.so",
			Reason: pjrt.PluginTruncated, Detail: "at byte 3", Hint: "install it again"},
		"pjrt: plugin x.so: not trusted: gs://b/x.so: it is a URL; copy it": &pjrt.PluginError{Path: "x.so",
			Reason: pjrt.PluginUntrusted, Err: url},
	} {
		assert.EqualError(t, err, want)
	}
	_, err := pjrt.VerifyPlugin("gs://b/x.so")
	require.Error(t, err)
	assert.Equal(t, 1, strings.Count(err.Error(), ";"), "only the hint of the path: %v", err)
	var zero pjrt.Client
	_, err = zero.Compile(background, addOne(1), pjrt.CompileOptions{})
	assert.EqualError(t, err, "pjrt: compile: the client is a zero value; create it with NewClient")
	assert.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
}

func TestCompilerErrorHasSummaryAndLog(t *testing.T) {
	c := plugintest.CPU(t, 1)
	_, err := c.Compile(background, function("%x: tensor<4xf32>", "tensor<5xf32>", "return %x : tensor<4xf32>"),
		pjrt.CompileOptions{})
	var pe *pjrt.Error
	require.ErrorAs(t, err, &pe)
	assert.NotContains(t, pe.Msg, "\n")
	if pe.Log != "" {
		assert.True(t, strings.HasPrefix(strings.TrimSpace(pe.Log), pe.Msg[:20]))
	}
}
