package keyvalue

import (
	"context"
	"net"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// DialFor is Dial with another patience.
func DialFor(network, address, secret string, patience time.Duration) *Remote {
	return &Remote{network, address, secret, patience}
}

// Serve answers the request of a connection that was let in.
func Serve(store pjrt.KeyValueStore, conn net.Conn) {
	s := &Server{store: store}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer s.cancel()
	s.serve(conn)
	s.serving.Wait()
}
