package blobstore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Service is what a store must know of a service beyond what gocloud.dev says of all of them. Every
// function may be nil. The packages below this one fill it in; a program that opens its own bucket
// may leave it out.
type Service struct {
	// Status returns the HTTP status in an error of the service, or 0.
	Status func(err error) int
	// Hint says what to do for a reason; an empty text stands for the general advice.
	Hint func(r Reason) string
	// Upload is called before an object is uploaded, with what a driver gives to
	// blob.WriterOptions.BeforeWrite. After the upload the store calls stored, if that is not nil.
	Upload func(as func(any) bool, u Upload) (stored func() (Receipt, bool), err error)
	// Sum returns the CRC-32C of the whole object that an answer to a read is of, with what a driver
	// gives to blob.Reader.As; false if the service does not say it.
	Sum func(as func(any) bool) (crc32c uint32, ok bool)
	// List is called before each request for a listing, with what a driver gives to
	// blob.ListOptions.BeforeList.
	List func(as func(any) bool) error
}

// Upload describes an upload that is about to begin.
type Upload struct {
	// Whole says that the object is sent in one request, and CRC32C is then the checksum of its
	// bytes, which the service is to compare.
	Whole  bool
	CRC32C uint32
	// Retry is how long the client may try to send one chunk.
	Retry time.Duration
}

// Receipt is what a service says that it has stored: the object's key in the bucket, its length in
// bytes and its checksum.
type Receipt struct {
	Key    string
	Size   int64
	CRC32C uint32
}

func (s *Service) status(err error) int {
	if s.Status == nil {
		return 0
	}
	return s.Status(err)
}

// sum returns the checksum of the object that r reads, as the service says it.
func (s *Service) sum(r *blob.Reader) (crc32c uint32, ok bool) {
	if s.Sum == nil {
		return 0, false
	}
	return s.Sum(r.As)
}

// known is an error whose reason the store knows by itself.
type known struct {
	error
	reason Reason
}

func (e known) Unwrap() error { return e.error }

var (
	// errStalled is the cause of a context that a [guard] ended.
	errStalled error = known{errors.New("no byte was moved for too long"), Stalled}
	// errReplaced is of an object that is another one than was opened.
	errReplaced error = known{errors.New("its size, time or checksum is another"), Replaced}
	// errCut is of an answer that ended before its end.
	errCut error = known{errors.New("the answer ended early"), Unavailable}
	// errGone is of a name that was taken when it was written and free when it was looked at, and of
	// an upload that the service does not know any more.
	errGone error = known{errors.New("it went meanwhile"), Unavailable}
	// errExists is of an object that another Put wrote.
	errExists error = known{errors.New("another writer put it"), Exists}
)

// reasonOf says why an attempt failed. In case of doubt it is not tried again.
func (s *Service) reasonOf(err error) Reason {
	k, sure := errors.AsType[known](err)
	if sure && k.reason != NoBucket {
		return k.reason
	}
	status := s.status(err)
	_, cut := errors.AsType[*json.SyntaxError](err) // an answer
	switch {
	case errors.Is(err, ErrDamaged), cut:
		return Damaged
	case status == http.StatusUnauthorized, isCredentials(err):
		return Unauthenticated
	case status == http.StatusForbidden:
		return Denied
	case status == http.StatusRequestTimeout, status == http.StatusGone, status == http.StatusTooManyRequests,
		status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		return Unavailable
	case status == http.StatusBadRequest && aboutChecksum(err):
		return Damaged
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound: // which a service may also say where it denies
		if sure {
			return NoBucket
		}
		return Missing
	case gcerrors.AlreadyExists, gcerrors.FailedPrecondition:
		return Exists
	case gcerrors.PermissionDenied:
		return Denied
	case gcerrors.Internal, gcerrors.ResourceExhausted, gcerrors.DeadlineExceeded:
		return Unavailable
	case gcerrors.InvalidArgument, gcerrors.Unimplemented:
		return Refused
	}
	if isNetwork(err) {
		return Unavailable
	}
	if status >= 400 {
		return Refused
	}
	return Other
}

// isNetwork reports whether an error is of a connection, and not of what the service answered.
func isNetwork(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return false // a wrong name does not come right
	}
	_, network := errors.AsType[net.Error](err)
	_, address := errors.AsType[*url.Error](err)
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, net.ErrClosed) || network || address && !errors.Is(err, context.Canceled) ||
		contains(err, "http2: ", "server closed idle connection", "connection reset")
}

// isCredentials reports whether there was nobody to ask as. The libraries have no type for it.
func isCredentials(err error) bool {
	return contains(err, "could not find default credentials", "failed to refresh cached credentials", "invalid_grant", "no credential", "DefaultAzureCredential")
}

// aboutChecksum reports whether a service refused bytes that do not have the checksum sent with
// them.
func aboutChecksum(err error) bool {
	return contains(err, "crc32c", "CRC32C", "BadDigest", "ChecksumMismatch", "Md5Mismatch", "Crc64Mismatch", "MD5")
}

func contains(err error, parts ...string) bool {
	text := err.Error()
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
