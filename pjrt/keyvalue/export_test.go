package keyvalue

import (
	"context"
	"net"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// DialTimeout is Dial with another timeout.
func DialTimeout(network, address, secret string, timeout time.Duration) *Client {
	return &Client{network, address, secret, timeout}
}

// Serve handles the request of an authenticated connection.
func Serve(store pjrt.KeyValueStore, conn net.Conn) {
	s := &Server{store: store}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer s.cancel()
	s.handleConn(conn)
	s.goroutines.Wait()
}
