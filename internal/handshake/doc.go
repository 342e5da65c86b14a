// Package handshake authenticates connections with a shared secret. Accept of a [Listener] returns
// only authenticated connections. Clients authenticate with [Authenticate]:
//
//	listener, err := handshake.Listen("tcp", "127.0.0.1:0", secret, nil)
//	conn, err := listener.Accept()
//
//	err = handshake.Authenticate(ctx, conn, secret) // in the client, after Dial
//
// Both sides prove that they know the secret with a keyed hash (HMAC-SHA-256) of random numbers that
// both sides have generated for the connection. The secret is not sent. The connection is neither
// encrypted nor signed afterwards, so it should be used only in the internal network of a job.
//
// # Limits
//
// The listener reads only 64 bytes of a client before authentication, which must be received within
// [Timeout]. At most [MaxUnauthenticated] unauthenticated connections are open. If there are more,
// the oldest is closed, so that idle connections cannot block authenticated clients.
package handshake
