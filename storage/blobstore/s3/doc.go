// Package s3 makes storage.Open take URLs of Amazon S3 and of services that speak its protocol:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/s3"
//
//	store, err := storage.Open(ctx, "s3://bucket/run?region=eu-central-1")
//
// Credentials and the region come from where the AWS SDK looks for them. Parameters of the URL
// besides chunk, patience and stall are those of gocloud.dev/blob/s3blob, such as region, endpoint
// and use_path_style. The service must know conditional writes (If-None-Match).
//
// An upload that is cut off can leave parts that nobody sees and that are charged for: give the
// bucket a lifecycle rule with AbortIncompleteMultipartUpload.
package s3
