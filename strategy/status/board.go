package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// Board is where the hosts of a run put their records. It is safe for concurrent use.
type Board struct {
	run     storage.Store
	records storage.Store // a part of it
	close   func() error
}

// Folder is the name of the folder of the records, below the place of a run.
const Folder = "status"

// Open opens the board of a run by its place: a folder, which is made if it is not there, or the URL
// of a store that package storage knows, such as gs://bucket/run where the program imports the
// package for it.
func Open(ctx context.Context, run string) (*Board, error) {
	s, err := storage.Open(ctx, run)
	if err != nil {
		return nil, err
	}
	return &Board{s, storage.Sub(s, Folder), s.Close}, nil
}

// In returns the board of a run whose place is a store that is open. The store stays the caller's.
func In(s storage.Store) *Board {
	return &Board{s, storage.Sub(s, Folder), func() error { return nil }}
}

// String returns the place.
func (b *Board) String() string { return b.run.String() }

// Objects reports whether the records are objects, each of which costs a request.
func (b *Board) Objects() bool { return storage.IsURL(b.String()) }

// Put puts a record in the place of the host's last one.
func (b *Board) Put(ctx context.Context, r *Record) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	return storage.PutBytes(ctx, b.records, nameOf(r.Host), data, storage.PutOptions{Volatile: true})
}

// PutText puts a text of a host beside its record, such as its goroutines.
func (b *Board) PutText(ctx context.Context, host int, what, text string) error {
	return storage.PutBytes(ctx, b.records, textOf(host, what), []byte(text), storage.PutOptions{Volatile: true})
}

// TextName returns the file of a text of a host.
func (b *Board) TextName(host int, what string) string {
	return b.records.String() + "/" + textOf(host, what)
}

// maxRecord bounds what is read of a record.
const maxRecord = 1 << 20

// Read reads the records of so many hosts, of any run, by host; of 0, of all hosts that are listed.
// Records that cannot be read are left out, and unreadable says why, each an error that names the
// file. Err is that of the listing.
func (b *Board) Read(ctx context.Context, hosts int) (all []Record, unreadable []error, err error) {
	var numbers []int
	for host := range hosts {
		numbers = append(numbers, host)
	}
	if hosts == 0 {
		if numbers, err = b.list(ctx); err != nil {
			return nil, nil, err
		}
	}
	records, errs := make([]Record, len(numbers)), make([]error, len(numbers))
	var group errgroup.Group
	group.SetLimit(16)
	for i, host := range numbers {
		group.Go(func() error {
			records[i], errs[i] = b.Get(ctx, host)
			return nil
		})
	}
	_ = group.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			all = append(all, records[i])
		case !errors.Is(err, fs.ErrNotExist):
			unreadable = append(unreadable, err)
		}
	}
	return all, unreadable, nil
}

// Get reads the last record of a host, of any run. Without one the error matches fs.ErrNotExist.
func (b *Board) Get(ctx context.Context, host int) (r Record, err error) {
	data, err := storage.ReadAll(ctx, b.records, nameOf(host), maxRecord)
	if err != nil {
		return r, err
	}
	if r, err = Parse(data); err == nil && r.Host != host {
		err = &errkind.Fault{Match: ErrRecord, Reason: fmt.Sprintf("it is of host %d", r.Host)}
	}
	if err != nil {
		err = &errkind.Fault{Op: "status: read", Subject: nameOf(host) + " in " + b.String(), Err: err}
	}
	return r, err
}

// list returns the numbers of the hosts that have a record, ascending.
func (b *Board) list(ctx context.Context) (hosts []int, err error) {
	infos, err := b.records.List(ctx, "host-")
	for _, info := range infos {
		var host int
		if _, err := fmt.Sscanf(info.Name, "host-%d.json", &host); err == nil && host >= 0 && nameOf(host) == info.Name {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts, err
}

// Clear removes the records of hosts that a run of so many hosts does not have, and what processes
// that were killed have left.
func (b *Board) Clear(ctx context.Context, hosts int) error {
	all, err := b.list(ctx)
	for _, host := range all {
		if host >= hosts {
			err = errors.Join(err, b.records.Remove(ctx, nameOf(host)))
		}
	}
	if s, ok := b.records.(storage.Sweeper); ok {
		err = errors.Join(err, s.Sweep(ctx, "", func(string) bool { return false }))
	}
	return err
}

// Close releases what the board holds. The records stay.
func (b *Board) Close() error { return b.close() }

func nameOf(host int) string { return fmt.Sprintf("host-%04d.json", host) }

func textOf(host int, what string) string { return fmt.Sprintf("host-%04d.%s.txt", host, what) }
