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

// Service provides features of a service that gocloud.dev does not expose. Every function may be
// nil. The packages gcs, s3 and azure provide these functions.
type Service struct {
	// Status returns the HTTP status in an error of the service, or 0.
	Status func(err error) int
	// Hint returns a suggestion for a reason; "" selects the general suggestion.
	Hint func(r Reason) string
	// Upload is called before an object is uploaded, with the as function of
	// blob.WriterOptions.BeforeWrite. If stored is not nil, the store calls it after the upload.
	Upload func(as func(any) bool, u Upload) (stored func() (StoredObject, bool), err error)
	// Checksum returns the CRC-32C of the complete object from a read response, given
	// blob.Reader.As. It returns false if the service does not send the CRC-32C.
	Checksum func(as func(any) bool) (crc32c uint32, ok bool)
	// List is called before each list request, with the as function of blob.ListOptions.BeforeList.
	List func(as func(any) bool) error
}

// Upload describes an upload that is about to start.
type Upload struct {
	// SingleRequest is true if the object is sent in one request. CRC32C is then the checksum of
	// its bytes, for the service to verify.
	SingleRequest bool
	CRC32C        uint32
	// RetryTimeout is the time for which the client may retry one chunk.
	RetryTimeout time.Duration
}

// StoredObject describes a stored object as reported by the service: its key in the bucket, its
// length in bytes and its checksum.
type StoredObject struct {
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

// checksum returns the checksum that the service sent with the response that r reads.
func (s *Service) checksum(r *blob.Reader) (crc32c uint32, ok bool) {
	if s.Checksum == nil {
		return 0, false
	}
	return s.Checksum(r.As)
}

// reasonError is an error with a known reason.
type reasonError struct {
	error
	reason Reason
}

func (e reasonError) Unwrap() error { return e.error }

var (
	// errStalled is the cause of a context that a stallGuard canceled.
	errStalled error = reasonError{errors.New("no byte was transferred for too long"), Stalled}
	// errReplaced reports that an object was replaced after it was opened.
	errReplaced error = reasonError{errors.New("its size, time or checksum has changed"), Replaced}
	// errTruncated reports a truncated response.
	errTruncated error = reasonError{errors.New("the response ended early"), Unavailable}
	// errVanished reports an object that existed during the Put but not during the following check,
	// or an upload that has expired.
	errVanished error = reasonError{errors.New("it was removed meanwhile"), Unavailable}
	// errExists reports that another Put wrote the object.
	errExists error = reasonError{errors.New("another writer created it"), AlreadyExists}
)

// classify returns the reason for the error of an attempt. Unknown errors are not retried.
func (s *Service) classify(err error) Reason {
	k, isClassified := errors.AsType[reasonError](err)
	if isClassified && k.reason != BucketNotFound {
		return k.reason
	}
	status := s.status(err)
	_, isMalformed := errors.AsType[*json.SyntaxError](err) // malformed JSON in a response
	switch {
	case errors.Is(err, ErrCorrupted), isMalformed:
		return Corrupted
	case status == http.StatusUnauthorized, isCredentialsError(err):
		return Unauthenticated
	case status == http.StatusForbidden:
		return PermissionDenied
	case status == http.StatusRequestTimeout, status == http.StatusGone, status == http.StatusTooManyRequests,
		status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		return Unavailable
	case status == http.StatusBadRequest && isChecksumMismatch(err):
		return Corrupted
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound: // some services also return NotFound for a missing permission
		if isClassified {
			return BucketNotFound
		}
		return NotFound
	case gcerrors.AlreadyExists, gcerrors.FailedPrecondition:
		return AlreadyExists
	case gcerrors.PermissionDenied:
		return PermissionDenied
	case gcerrors.Internal, gcerrors.ResourceExhausted, gcerrors.DeadlineExceeded:
		return Unavailable
	case gcerrors.InvalidArgument, gcerrors.Unimplemented:
		return InvalidRequest
	}
	if isNetworkError(err) {
		return Unavailable
	}
	if status >= 400 {
		return InvalidRequest
	}
	return Unknown
}

// isNetworkError reports whether err is an error of the network connection, as opposed to an error
// of the service.
func isNetworkError(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return false // an unknown host name is permanent
	}
	_, network := errors.AsType[net.Error](err)
	_, address := errors.AsType[*url.Error](err)
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, net.ErrClosed) || network || address && !errors.Is(err, context.Canceled) ||
		textContainsAny(err, "http2: ", "server closed idle connection", "connection reset")
}

// isCredentialsError reports whether credentials are missing or expired. It compares texts, because
// the libraries have no error type for it.
func isCredentialsError(err error) bool {
	return textContainsAny(err, "could not find default credentials", "failed to refresh cached credentials",
		"invalid_grant", "no credential", "DefaultAzureCredential")
}

// isChecksumMismatch reports whether the service rejected data because its checksum does not match.
func isChecksumMismatch(err error) bool {
	return textContainsAny(err, "crc32c", "CRC32C", "BadDigest", "ChecksumMismatch", "Md5Mismatch", "Crc64Mismatch", "MD5")
}

func textContainsAny(err error, parts ...string) bool {
	text := err.Error()
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
