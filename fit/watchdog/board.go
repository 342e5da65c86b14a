package watchdog

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
	store storage.Store // of the run
	owned bool          // by the board
}

// Open opens the board of a run by its place: a folder, which is made if it is not there, or the URL
// of a store that package storage knows, such as gs://bucket/run where the program imports the
// package for it.
func Open(ctx context.Context, run string) (*Board, error) {
	s, err := storage.Open(ctx, run)
	if err != nil {
		return nil, err
	}
	return &Board{s, true}, nil
}

// In returns the board of a run whose place is a store that is open. The store stays the caller's.
func In(s storage.Store) *Board { return &Board{s, false} }

// Close releases what the board holds. The records stay.
func (b *Board) Close() error {
	if b == nil {
		return nil
	}
	if b.owned {
		return b.store.Close()
	}
	return nil
}

// The files of the records, and of the texts of a host beside its record.
const (
	hostFiles      = "status/host-"
	recordFile     = hostFiles + "%04d.json"
	goroutinesFile = hostFiles + "%04d.goroutines.txt"
)

// Put puts a record in the place of the host's last one.
func (b *Board) Put(ctx context.Context, r *Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return b.put(ctx, fmt.Sprintf(recordFile, r.Host), data)
}

func (b *Board) put(ctx context.Context, name string, data []byte) error {
	return storage.PutBytes(ctx, b.store, name, data, storage.PutOptions{Volatile: true})
}

// Get reads the last record of a host, of any run. Without one the error matches fs.ErrNotExist.
func (b *Board) Get(ctx context.Context, host int) (r Record, err error) {
	name := fmt.Sprintf(recordFile, host)
	data, err := b.read(ctx, host)
	if err != nil {
		return r, err
	}
	if r, err = parse(data); err == nil && r.Host != host {
		err = &errkind.Fault{Match: errRecord, Reason: fmt.Sprintf("it is of host %d", r.Host)}
	}
	if err != nil {
		err = &errkind.Fault{Op: "watchdog: read", Subject: name + " in " + b.store.String(), Err: err}
	}
	return r, err
}

// read reads the text of a host's record.
func (b *Board) read(ctx context.Context, host int) ([]byte, error) {
	return storage.ReadAll(ctx, b.store, fmt.Sprintf(recordFile, host), 1<<20)
}

// putBack replaces a host's record by the text of an earlier one, or removes it if there was none.
func (b *Board) putBack(ctx context.Context, host int, record []byte) error {
	name := fmt.Sprintf(recordFile, host)
	if record == nil {
		return b.store.Remove(ctx, name)
	}
	return b.put(ctx, name, record)
}

// Read reads the records of so many hosts, of any run, by host; of 0, of all hosts that are listed.
// Records that cannot be read are left out, and unreadable says why, each an error that names the
// file. Err is that of the listing.
func (b *Board) Read(ctx context.Context, hosts int) (all []Record, unreadable []error, err error) {
	numbers := make([]int, hosts)
	for host := range numbers {
		numbers[host] = host
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
		if err == nil {
			all = append(all, records[i])
		} else if !errors.Is(err, fs.ErrNotExist) {
			unreadable = append(unreadable, err)
		}
	}
	return all, unreadable, nil
}

// list returns the numbers of the hosts that have a record, ascending.
func (b *Board) list(ctx context.Context) (hosts []int, err error) {
	infos, err := b.store.List(ctx, hostFiles)
	for _, info := range infos {
		var host int
		if _, err := fmt.Sscanf(info.Name, hostFiles+"%d.json", &host); err == nil && host >= 0 && fmt.Sprintf(recordFile, host) == info.Name {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts, err
}

// clear removes the records of hosts that a run of so many hosts does not have, and what processes
// that were killed have left.
func (b *Board) clear(ctx context.Context, hosts int) error {
	all, err := b.list(ctx)
	for _, host := range all {
		if host >= hosts {
			err = errors.Join(err, b.store.Remove(ctx, fmt.Sprintf(recordFile, host)))
		}
	}
	if s, ok := b.store.(storage.Sweeper); ok {
		err = errors.Join(err, s.Sweep(ctx, "status/", func(string) bool { return false }))
	}
	return err
}
