package trainer

import (
	"context"
	"os"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// noticesKey is the context key of a channel of notices. A notice on it ends the context of [Main].
type noticesKey struct{}

// withNotices returns a context that contains a channel of notices and is canceled by the first
// notice.
func withNotices(ctx context.Context) (context.Context, func()) {
	notices := make(chan interrupt.Notice)
	return interrupt.Notify(context.WithValue(ctx, noticesKey{}, notices),
		interrupt.Options{Signals: []os.Signal{}, Notices: notices})
}

// forwardNotices makes Main wait for the run until release is called. On a machine with a TPU it
// also forwards maintenance and preemption notices to the context of Main.
func (f *Flags) forwardNotices(ctx context.Context) (release func()) {
	held := command.Hold(ctx)
	notices, ok := ctx.Value(noticesKey{}).(chan interrupt.Notice)
	if !ok || f.Devices != 0 {
		return held
	}
	notified, stop := interrupt.Notify(ctx, interrupt.Options{Signals: []os.Signal{},
		Metadata: clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{})})
	go func() {
		<-notified.Done()
		if n, ok := context.Cause(notified).(*interrupt.Notice); ok {
			select {
			case notices <- *n:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		stop()
		held()
	}
}
