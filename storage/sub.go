package storage

import (
	"context"
	"io"
	"strings"
)

// Sub returns a store of the objects of s whose names begin with prefix and a slash, like fs.Sub.
// Object names in the new store omit the prefix. Closing it does nothing. If prefix is not a valid
// name, operations return an error.
func Sub(s Store, prefix string) Store {
	if outer, ok := s.(*subStore); ok {
		return &subStore{outer.Store, outer.prefix + prefix + "/"}
	}
	return &subStore{s, prefix + "/"}
}

type subStore struct {
	Store
	prefix string // ends in a slash
}

func (s *subStore) Put(ctx context.Context, name string, opts PutOptions, write func(io.Writer) error) error {
	return s.Store.Put(ctx, s.prefix+name, opts, write)
}

func (s *subStore) Open(ctx context.Context, name string) (Object, error) {
	return s.Store.Open(ctx, s.prefix+name)
}

func (s *subStore) List(ctx context.Context, prefix string) ([]Info, error) {
	all, err := s.Store.List(ctx, s.prefix+prefix)
	for i := range all {
		all[i].Name = strings.TrimPrefix(all[i].Name, s.prefix)
	}
	return all, err
}

func (s *subStore) Remove(ctx context.Context, name string) error {
	return s.Store.Remove(ctx, s.prefix+name)
}

func (s *subStore) Sweep(ctx context.Context, prefix string, isLive func(string) bool) error {
	if sweeper, ok := s.Store.(Sweeper); ok {
		return sweeper.Sweep(ctx, s.prefix+prefix, func(name string) bool {
			return isLive(strings.TrimPrefix(name,
				s.prefix))
		})
	}
	return nil
}

func (s *subStore) String() string {
	return strings.TrimSuffix(s.Store.String(), "/") + "/" + strings.TrimSuffix(s.prefix, "/")
}

func (s *subStore) Close() error { return nil }
