// Package azure makes storage.Open take URLs of Azure Blob Storage:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/azure"
//
//	store, err := storage.Open(ctx, "azblob://container/run")
//
// The account and its credentials come from the variables AZURE_STORAGE_ACCOUNT and the others that
// gocloud.dev/blob/azureblob reads. Parameters of the URL besides chunk, patience and stall are
// those of that package, such as domain and protocol.
package azure
