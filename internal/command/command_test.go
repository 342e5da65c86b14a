package command

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSignalCancelsContext(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		text   string
		code   int
	}{{syscall.SIGINT, "interrupted", 130}, {syscall.SIGTERM, "terminated", 143}} {
		ctx, stop := UntilSignal(t.Context())
		defer stop()
		require.NoError(t, syscall.Kill(os.Getpid(), c.signal))
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the signal did not arrive")
		}
		assert.EqualError(t, context.Cause(ctx), c.text)
		assert.Equal(t, c.code, Cause(ctx).Code())
	}
	ctx, stop := UntilSignal(t.Context())
	stop()
	assert.ErrorIs(t, context.Cause(ctx), context.Canceled)
	assert.Equal(t, 130, Cause(ctx).Code())
}
