package trainer

import (
	"context"
	"os"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// noticesKey is that of the channel by which what runs below [Main] ends its context.
type noticesKey struct{}

// notified returns a context that notices end which are sent to its channel.
func notified(ctx context.Context) (context.Context, func()) {
	notices := make(chan interrupt.Notice)
	return interrupt.Notify(context.WithValue(ctx, noticesKey{}, notices), interrupt.Options{Signals: []os.Signal{}, Notices: notices})
}

// watch has Main wait for the work under way, and on a machine with a TPU follows its notices of
// maintenance and pre-emption, until release is called.
func (f *Flags) watch(ctx context.Context) (release func()) {
	held := command.Hold(ctx)
	notices, ok := ctx.Value(noticesKey{}).(chan interrupt.Notice)
	if !ok || f.Devices != 0 {
		return held
	}
	over, stop := interrupt.Notify(ctx, interrupt.Options{Signals: []os.Signal{}, Metadata: clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{})})
	go func() {
		<-over.Done()
		if n, ok := context.Cause(over).(*interrupt.Notice); ok {
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
