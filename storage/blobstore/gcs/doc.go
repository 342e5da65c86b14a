// Package gcs registers URLs of Google Cloud Storage with storage.Open:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
//
//	store, err := storage.Open(ctx, "gs://bucket/run")
//
// The client uses Application Default Credentials: GOOGLE_APPLICATION_CREDENTIALS, the result of
// `gcloud auth application-default login`, or the machine's service account. The account needs the
// role roles/storage.objectUser on the bucket, and a VM needs the access scope cloud-platform.
// Create the bucket in the region of the slice.
//
// [Open] opens a URL. [New] uses a bucket of a client that the program created. Package blobstore
// documents the behavior, the retries and the cost of a store.
package gcs
