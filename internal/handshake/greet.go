package handshake

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrSecret is matched by the error if the other side has a different secret or the secret is empty.
var ErrSecret = errkind.New(errkind.PermissionDeniedError, "handshake: the secrets of the two sides differ")

// ErrProtocol is matched by the error if the other side does not use this protocol.
var ErrProtocol = errkind.New(errkind.InvalidArgumentError, "handshake: the other side uses another protocol")

// The listener sends magic and a nonce. The client sends its own nonce and its proof. The listener
// sends accepted and its own proof, or rejected.
const (
	magic    = "TPS1"
	accepted = 'y'
	rejected = 'n'
)

// nonce is a random number for one connection. It prevents replay of an earlier handshake.
type nonce [sha256.Size]byte

// proof returns the HMAC with which one side of a connection proves that it knows the secret. side
// is listenerSide or peerSide. The HMAC includes the nonces of both sides.
func proof(secret, side string, listener, peer nonce) []byte {
	key := sha256.Sum256([]byte(secret)) // HMAC pads short keys, so "x" and "x\x00" would be equal
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(magic + side))
	h.Write(listener[:])
	h.Write(peer[:])
	return h.Sum(nil)
}

const (
	listenerSide = "listener"
	peerSide     = "peer"
)

// authenticatePeer performs the listener's side of a handshake. It reads at most 64 bytes before
// the client is authenticated.
func authenticatePeer(conn net.Conn, secret string) error {
	if err := conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return err
	}
	var own nonce
	_, _ = rand.Read(own[:]) // it never fails
	if _, err := conn.Write(append([]byte(magic), own[:]...)); err != nil {
		return err
	}
	var answer [2 * sha256.Size]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	peer := nonce(answer[:sha256.Size])
	if !hmac.Equal(answer[sha256.Size:], proof(secret, peerSide, own, peer)) {
		_, _ = conn.Write([]byte{rejected}) // the connection is closed even if this fails
		return &errkind.Fault{Match: ErrSecret}
	}
	if _, err := conn.Write(append([]byte{accepted}, proof(secret, listenerSide, own, peer)...)); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// Authenticate performs the client's side of a handshake. If ctx ends or [Timeout] elapses, the
// error matches the cause of ctx or os.ErrDeadlineExceeded. If authentication fails, it matches
// [ErrSecret] or [ErrProtocol]. The caller must close the connection in any case.
func Authenticate(ctx context.Context, conn net.Conn, secret string) (err error) {
	if secret == "" {
		return &errkind.Fault{Match: ErrSecret, Reason: "the secret of this side is empty"}
	}
	if err := conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if err == nil {
			err = conn.SetDeadline(time.Time{})
		}
	}()
	var first [len(magic) + sha256.Size]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return err
	}
	if got := first[:len(magic)]; string(got) != magic {
		return &errkind.Fault{Match: ErrProtocol, Reason: fmt.Sprintf("it sent %q instead of %q", got, magic)}
	}
	listener := nonce(first[len(magic):])
	var own nonce
	_, _ = rand.Read(own[:]) // it never fails
	if _, err := conn.Write(append(own[:], proof(secret, peerSide, listener, own)...)); err != nil {
		return err
	}
	var verdict [1 + sha256.Size]byte
	if _, err := io.ReadFull(conn, verdict[:1]); err != nil {
		return err
	}
	switch verdict[0] {
	case accepted:
	case rejected:
		return &errkind.Fault{Match: ErrSecret}
	default:
		return &errkind.Fault{Match: ErrProtocol, Reason: fmt.Sprintf("it replied %q", verdict[:1])}
	}
	if _, err := io.ReadFull(conn, verdict[1:]); err != nil {
		return err
	}
	if !hmac.Equal(verdict[1:], proof(secret, listenerSide, listener, own)) {
		return &errkind.Fault{Match: ErrSecret, Reason: "the listener does not know the secret"}
	}
	return nil
}
