// Package handshake lets in those who know a secret: a listener whose Accept returns only connections
// of peers that have proved it, and the other side, by which a peer does.
//
//	listener, err := handshake.Listen("tcp", "127.0.0.1:0", secret, nil)
//	conn, err := listener.Accept()
//
//	err = handshake.Greet(ctx, conn, secret) // the peer, on a connection that it has dialed
//
// Both sides prove that they know the secret, by a keyed hash (HMAC-SHA-256) of numbers that both have
// drawn for this connection; the secret itself is not sent. What follows is neither encrypted nor
// signed: listen inside the job's own network only.
//
// # What a stranger costs
//
// A peer sends 64 bytes before it is let in, and nothing more is read of it. It has [Patience] for
// that. At most [MaxStrangers] connections are open that have not proved anything: one more, and the
// oldest of them is dropped, so that those who are silent keep nobody out who knows the secret.
package handshake
