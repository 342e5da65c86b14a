package blobstore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
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

// errStalled is the cause of a context that a [guard] ended.
var errStalled = errors.New("no byte was moved for too long")

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

// reasonOf says why an attempt failed. In case of doubt it is not tried again.
func (s *Service) reasonOf(err error) Reason {
	status := s.status(err)
	var (
		caller callerError
		exists existsError
		bucket noBucketError
		syntax *json.SyntaxError // an answer that was cut
	)
	switch {
	case errors.As(err, &caller):
		return Other
	case errors.As(err, &exists):
		return Exists
	case errors.Is(err, errReplaced):
		return Replaced
	case errors.Is(err, errGone), errors.Is(err, errCut), status == http.StatusGone:
		return Unavailable
	case errors.Is(err, errStalled):
		return Stalled
	case errors.Is(err, ErrDamaged), errors.As(err, &syntax):
		return Damaged
	case status == http.StatusUnauthorized, isCredentials(err):
		return Unauthenticated
	case status == http.StatusForbidden:
		return Denied
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests,
		status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		return Unavailable
	case status == http.StatusBadRequest && aboutChecksum(err):
		return Damaged
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		if errors.As(err, &bucket) {
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
	var network net.Error
	var address *url.Error
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return false // a wrong name does not come right
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &network) || errors.As(err, &address) && !errors.Is(err, context.Canceled) ||
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
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
