// Package gcs makes storage.Open take URLs of Google Cloud Storage:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
//
//	store, err := storage.Open(ctx, "gs://bucket/run")
//
// The client finds its credentials as all of Google's clients do: GOOGLE_APPLICATION_CREDENTIALS,
// what `gcloud auth application-default login` left, or the machine's service account. The account
// needs the role roles/storage.objectUser on the bucket, and a VM the access scope cloud-platform.
// Keep the bucket in the region of the slice.
//
// [Open] opens a URL, [New] a bucket of a client that the program made. How a store behaves, what it
// tries again and what it costs is in package blobstore.
package gcs
