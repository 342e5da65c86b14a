package blobstore

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/storage"
)

// Location is the parsed URL of a store.
type Location struct {
	// Scheme, Bucket and Prefix are "gs", "bucket" and "run" for the URL "gs://bucket/run". Prefix
	// may be empty.
	Scheme, Bucket, Prefix string
	// Query contains the parameters other than patience, stall and chunk.
	Query url.Values
	// Options contains the name, the prefix, and the parameters patience and stall (durations) and
	// chunk (bytes).
	Options Options
}

// ParseURL parses the URL of a store. The bucket must not be empty.
func ParseURL(text string) (Location, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Location{}, valueError("open", "write it as in gs://bucket/run", "a URL that cannot be parsed")
	}
	p := Location{Scheme: strings.ToLower(u.Scheme), Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Query: u.Query()}
	name := fmt.Sprintf("%s://%s", p.Scheme, p.Bucket)
	if p.Bucket == "" || u.User != nil || u.Fragment != "" {
		return Location{},
			valueError("open", "write it as in gs://bucket/run, and configure credentials as the service expects",
				"%s with no bucket, a user or a fragment", name)
	}
	if p.Prefix != "" {
		if err := storage.CheckName(p.Prefix); err != nil {
			return Location{}, err
		}
		name += "/" + p.Prefix
	}
	p.Options = Options{Name: name, Prefix: p.Prefix}
	for key, dst := range map[string]*time.Duration{"patience": &p.Options.RetryTimeout,
		"stall": &p.Options.StallTimeout} {
		if !p.Query.Has(key) {
			continue
		}
		if *dst, err = time.ParseDuration(p.Query.Get(key)); err != nil || *dst <= 0 {
			return Location{}, valueError("open", "write a duration such as 90s", "parameter %s=%s of %s", key,
				p.Query.Get(key), name)
		}
		p.Query.Del(key)
	}
	if p.Query.Has("chunk") {
		n, err := strconv.Atoi(p.Query.Get("chunk"))
		if err != nil || n <= 0 {
			return Location{}, valueError("open", "write a number of bytes such as 16777216", "parameter chunk=%s of %s",
				p.Query.Get("chunk"), name)
		}
		p.Options.ChunkBytes = n
		p.Query.Del("chunk")
	}
	return p, nil
}
