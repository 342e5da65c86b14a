package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

// addListingCheck makes the client check each list response. Without the check, the client parses a
// malformed response as an empty listing, and the driver dereferences missing dates.
func addListingCheck(as func(any) bool) error {
	var options *[]func(*s3.Options)
	if !as(&options) {
		return fmt.Errorf("s3: the driver does not expose its list requests")
	}
	*options = append(*options, func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("CheckListing", checkListResponse),
				middleware.After)
		})
	})
	return nil
}

// maxListingBytes is the maximum size of a list response: about twice the size of a thousand keys
// of 1,024 escaped bytes.
const maxListingBytes = 16 << 20

func checkListResponse(ctx context.Context, in middleware.DeserializeInput,
	next middleware.DeserializeHandler) (out middleware.DeserializeOutput, md middleware.Metadata, err error) {
	out, md, err = next.HandleDeserialize(ctx, in)
	response, ok := out.RawResponse.(*smithyhttp.Response)
	if err != nil || !ok || response.StatusCode != http.StatusOK {
		return out, md, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxListingBytes+1))
	_ = response.Body.Close() // the body has been read
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err == nil {
		err = checkListing(body)
	}
	return out, md, err
}

// checkListing returns an error that matches [blobstore.ErrCorrupted] unless body is a complete
// listing.
func checkListing(body []byte) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: the response to a listing: %s", blobstore.ErrCorrupted, fmt.Sprintf(format, args...))
	}
	if len(body) > maxListingBytes {
		return bad("over %d bytes", maxListingBytes)
	}
	var l struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		Next        *string `xml:"NextContinuationToken"`
		Contents    []struct {
			Key, LastModified *string
			Size              *int64
		}
	}
	if err := xml.Unmarshal(body, &l); err != nil {
		return bad("%v, in %.60q", err, body)
	}
	if l.IsTruncated && (l.Next == nil || *l.Next == "") {
		return bad("it is truncated and has no continuation token")
	}
	for i, o := range l.Contents {
		switch {
		case o.Key == nil || *o.Key == "":
			return bad("object %d has no key", i)
		case o.Size == nil || *o.Size < 0:
			return bad("%.200q has no size", *o.Key)
		case o.LastModified == nil:
			return bad("%.200q has no date", *o.Key)
		}
		if _, err := smithytime.ParseDateTime(*o.LastModified); err != nil {
			return bad("%.200q has the date %.60q", *o.Key, *o.LastModified)
		}
	}
	return nil
}
