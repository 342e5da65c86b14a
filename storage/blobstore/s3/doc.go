// Package s3 registers URLs of Amazon S3 and compatible services with storage.Open:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/s3"
//
//	store, err := storage.Open(ctx, "s3://bucket/run?region=eu-central-1")
//
// Credentials and the region are read from the AWS SDK's default configuration. The URL accepts the
// parameters chunk, patience and stall, and the parameters of gocloud.dev/blob/s3blob, such as
// region, endpoint and use_path_style. The service must support conditional writes (If-None-Match).
//
// An interrupted upload can leave invisible parts that are charged. Add a lifecycle rule with
// AbortIncompleteMultipartUpload to the bucket to remove them.
package s3
