package azure

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	_ "gocloud.dev/blob/azureblob" // the driver

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

func init() { storage.Register("azblob", open) }

func open(ctx context.Context, url string) (storage.Store, error) { return Open(ctx, url) }

// Open opens the store at a URL. It lists one object to check that the container is accessible. The
// caller must close the store.
func Open(ctx context.Context, url string) (*blobstore.Store, error) {
	return blobstore.OpenURL(ctx, "azblob", url, blobstore.Service{Status: status, Hint: hint},
		"set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN where the machine has no identity")
}

func status(err error) int {
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

func hint(r blobstore.Reason) string {
	switch r {
	case blobstore.Unauthenticated, blobstore.PermissionDenied:
		return "give the identity the role Storage Blob Data Contributor on the container, or set AZURE_STORAGE_KEY"
	case blobstore.BucketNotFound:
		return "correct AZURE_STORAGE_ACCOUNT or the container's name, or make it with `az storage container create`"
	}
	return ""
}
