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

// ErrSecret matches the error of a side whose secret is another one, or empty.
var ErrSecret = errkind.New(errkind.PermissionDeniedError, "handshake: the secret is another one")

// ErrProtocol matches the error of a peer that speaks something else.
var ErrProtocol = errkind.New(errkind.InvalidArgumentError, "handshake: the peer speaks another protocol")

// The listener begins with the magic and a number that it draws. The peer answers with a number of
// its own and its proof. Then comes a verdict, and, if the peer is let in, the listener's proof.
const (
	magic   = "TPS1"
	entered = 'y'
	refused = 'n'
)

// number is drawn for a connection, so that what was heard on another proves nothing.
type number [sha256.Size]byte

// proof is what only one who knows the secret can compute, for one side of one connection.
func proof(secret, side string, listener, peer number) []byte {
	key := sha256.Sum256([]byte(secret)) // HMAC fills a short key with zeros
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

// admit is the listener's side of a handshake. It reads 64 bytes at most.
func admit(conn net.Conn, secret string) error {
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	var own number
	_, _ = rand.Read(own[:]) // it never fails
	if _, err := conn.Write(append([]byte(magic), own[:]...)); err != nil {
		return err
	}
	var answer [2 * sha256.Size]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	peer := number(answer[:sha256.Size])
	if !hmac.Equal(answer[sha256.Size:], proof(secret, peerSide, own, peer)) {
		_, _ = conn.Write([]byte{refused}) // it is cut off, whether it hears why or not
		return &errkind.Fault{Match: ErrSecret}
	}
	if _, err := conn.Write(append([]byte{entered}, proof(secret, listenerSide, own, peer)...)); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// Greet proves to a listener that this peer knows the secret, and has the listener prove it too. It
// ends with ctx, or after [Patience]; its error then matches that of ctx or os.ErrDeadlineExceeded.
// Others match [ErrSecret] and [ErrProtocol]. The connection stays the caller's, to be closed after
// an error.
func Greet(ctx context.Context, conn net.Conn, secret string) (err error) {
	if secret == "" {
		return &errkind.Fault{Match: ErrSecret, Reason: "this side has none"}
	}
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
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
		return &errkind.Fault{Match: ErrProtocol, Reason: fmt.Sprintf("it begins with %q, not with %q", got, magic)}
	}
	listener := number(first[len(magic):])
	var own number
	_, _ = rand.Read(own[:]) // it never fails
	if _, err := conn.Write(append(own[:], proof(secret, peerSide, listener, own)...)); err != nil {
		return err
	}
	var verdict [1 + sha256.Size]byte
	if _, err := io.ReadFull(conn, verdict[:1]); err != nil {
		return err
	}
	switch verdict[0] {
	case entered:
	case refused:
		return &errkind.Fault{Match: ErrSecret}
	default:
		return &errkind.Fault{Match: ErrProtocol, Reason: fmt.Sprintf("it answers %q", verdict[:1])}
	}
	if _, err := io.ReadFull(conn, verdict[1:]); err != nil {
		return err
	}
	if !hmac.Equal(verdict[1:], proof(secret, listenerSide, listener, own)) {
		return &errkind.Fault{Match: ErrSecret, Reason: "the listener does not know it"}
	}
	return nil
}
