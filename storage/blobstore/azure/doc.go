// Package azure registers URLs of Azure Blob Storage with storage.Open:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/azure"
//
//	store, err := storage.Open(ctx, "azblob://container/run")
//
// The account and its credentials are read from AZURE_STORAGE_ACCOUNT and the other environment
// variables of gocloud.dev/blob/azureblob. The URL accepts the parameters chunk, patience and
// stall, and the parameters of that package, such as domain and protocol.
package azure
