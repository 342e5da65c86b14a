package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

var (
	registryMutex sync.Mutex
	openers       = map[string]func(ctx context.Context, url string) (Store, error){}
)

// Register registers the function with which [Open] opens URLs of a scheme, such as "gs". Packages
// call it in their init functions. It panics if the scheme is invalid, not in lower case, or
// already registered, or if open is nil.
func Register(scheme string, open func(ctx context.Context, url string) (Store, error)) {
	registryMutex.Lock()
	defer registryMutex.Unlock()
	if !schemePattern.MatchString(scheme) || open == nil {
		panic(fmt.Sprintf("storage: Register: %q is no scheme in lower case, or its opener is nil", scheme))
	}
	if openers[scheme] != nil {
		panic(fmt.Sprintf("storage: Register: scheme %q is registered already", scheme))
	}
	openers[scheme] = open
}

var (
	schemePattern = regexp.MustCompile(`^[a-z][a-z0-9+.-]+$`)
	urlPattern    = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+)://`)
)

// Schemes returns the registered schemes, sorted.
func Schemes() []string {
	registryMutex.Lock()
	defer registryMutex.Unlock()
	return slices.Sorted(maps.Keys(openers))
}

// IsURL reports whether path is a URL. [Open] accepts URLs with a registered scheme.
func IsURL(path string) bool { return urlPattern.MatchString(path) }

// Open opens the store at path: the path of a folder, which is created if necessary, or a URL with
// a registered scheme, such as "gs://bucket/run". "file:///run" is the folder /run, unless the
// scheme file is registered. If a scheme is not registered, the error is a ValueError that names
// the package to import. The caller must close the store.
func Open(ctx context.Context, path string) (Store, error) {
	m := urlPattern.FindStringSubmatch(path)
	if m == nil {
		return Directory(path)
	}
	scheme := strings.ToLower(m[1])
	registryMutex.Lock()
	open := openers[scheme]
	registryMutex.Unlock()
	if open == nil && scheme == "file" {
		u, err := url.Parse(path)
		if err != nil || u.Host != "" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, &errkind.Fault{Op: "storage: open", Subject: redactURL(path), Class: errkind.ValueError,
				Reason: "a file URL must have an absolute path and nothing else",
				Hint:   "use the path of a folder, or a URL such as file:///run/checkpoints"}
		}
		return Directory(u.Path)
	}
	if open == nil {
		return nil, &errkind.Fault{Op: "storage: open", Subject: redactURL(path), Class: errkind.ValueError,
			Reason: fmt.Sprintf("this program imports no package for %s://; its URL schemes are: %s", scheme,
				cmp.Or(strings.Join(Schemes(), ", "), "none")), Hint: importHint(scheme)}
	}
	s, err := open(ctx, path)
	if err != nil {
		return nil, &errkind.Fault{Op: "storage: open", Subject: redactURL(path), Err: err}
	}
	return s, nil
}

// schemePackages maps schemes to the packages that register them. The packages are in a separate
// module.
var schemePackages = map[string]string{"gs": "gcs", "s3": "s3", "azblob": "azure", "mem": "mem"}

func importHint(scheme string) string {
	if p := schemePackages[scheme]; p != "" {
		return fmt.Sprintf("import _ %q, or give a folder", "github.com/tpustrategy/tpustrategy/storage/blobstore/"+p)
	}
	return "import a package that registers it with storage.Register, or give a folder"
}

// redactURL returns a URL without its password, query and fragment, which may contain secrets.
func redactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a URL that cannot be parsed"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

// checkLocalPath returns an error if path is empty or looks like a URL with a missing slash.
func checkLocalPath(path string) error {
	if path == "" {
		return &errkind.Fault{Op: "storage: open", Reason: "an empty path", Hint: "give a folder or a URL",
			Class: errkind.ValueError}
	}
	return files.CheckLocal(path)
}
