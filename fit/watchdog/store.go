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

// RecordStore stores the status records of the hosts of a run. It is safe for concurrent use.
type RecordStore struct {
	store     storage.Store // of the run
	ownsStore bool          // Close closes the store
}

// OpenRecordStore opens the record store of a run in dir: a folder, which is created if necessary,
// or a URL that package storage supports, such as gs://bucket/run if the program imports the
// package for its scheme.
func OpenRecordStore(ctx context.Context, dir string) (*RecordStore, error) {
	s, err := storage.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &RecordStore{s, true}, nil
}

// NewRecordStore returns a record store in an open store. The caller remains the owner of s.
func NewRecordStore(s storage.Store) *RecordStore { return &RecordStore{s, false} }

// Close releases the resources of the store. It does not remove records.
func (b *RecordStore) Close() error {
	if b == nil {
		return nil
	}
	if b.ownsStore {
		return b.store.Close()
	}
	return nil
}

// Formats of the object names of a host.
const (
	hostFiles      = "status/host-"
	recordFile     = hostFiles + "%04d.json"
	goroutinesFile = hostFiles + "%04d.goroutines.txt"
)

// Put writes a record. It replaces the previous record of the host.
func (b *RecordStore) Put(ctx context.Context, r *Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return b.writeObject(ctx, fmt.Sprintf(recordFile, r.Host), data)
}

func (b *RecordStore) writeObject(ctx context.Context, name string, data []byte) error {
	return storage.PutBytes(ctx, b.store, name, data, storage.PutOptions{Volatile: true})
}

// Get returns the last record of a host, of any run. If there is no record, the error matches
// fs.ErrNotExist.
func (b *RecordStore) Get(ctx context.Context, host int) (r Record, err error) {
	name := fmt.Sprintf(recordFile, host)
	data, err := b.readEncoded(ctx, host)
	if err != nil {
		return r, err
	}
	if r, err = parseRecord(data); err == nil && r.Host != host {
		err = &errkind.Fault{Match: errRecord, Reason: fmt.Sprintf("it is of host %d", r.Host)}
	}
	if err != nil {
		err = &errkind.Fault{Op: "watchdog: read", Subject: name + " in " + b.store.String(), Err: err}
	}
	return r, err
}

func (b *RecordStore) readEncoded(ctx context.Context, host int) ([]byte, error) {
	return storage.ReadAll(ctx, b.store, fmt.Sprintf(recordFile, host), 1<<20)
}

// restore replaces a host's record by an earlier encoded record. If record is nil, it removes the
// host's record.
func (b *RecordStore) restore(ctx context.Context, host int, record []byte) error {
	name := fmt.Sprintf(recordFile, host)
	if record == nil {
		return b.store.Remove(ctx, name)
	}
	return b.writeObject(ctx, name, record)
}

// ReadAll returns the records of the hosts 0 to hosts-1, of any run, in the order of the hosts. If
// hosts is 0, it returns all records in the store. It omits records that it cannot read; unreadable
// contains an error for each, which names the object. err is an error of listing the records.
func (b *RecordStore) ReadAll(ctx context.Context, hosts int) (all []Record, unreadable []error, err error) {
	numbers := make([]int, hosts)
	for host := range numbers {
		numbers[host] = host
	}
	if hosts == 0 {
		if numbers, err = b.listHosts(ctx); err != nil {
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

// listHosts returns the numbers of the hosts that have a record, in ascending order.
func (b *RecordStore) listHosts(ctx context.Context) (hosts []int, err error) {
	infos, err := b.store.List(ctx, hostFiles)
	for _, info := range infos {
		var host int
		if _, err := fmt.Sscanf(info.Name, hostFiles+"%d.json", &host); err == nil && host >= 0 &&
			fmt.Sprintf(recordFile, host) == info.Name {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts, err
}

// removeStale removes the records of hosts with a number of at least hosts, and the temporary files
// of processes that were killed.
func (b *RecordStore) removeStale(ctx context.Context, hosts int) error {
	recorded, err := b.listHosts(ctx)
	for _, host := range recorded {
		if host >= hosts {
			err = errors.Join(err, b.store.Remove(ctx, fmt.Sprintf(recordFile, host)))
		}
	}
	if s, ok := b.store.(storage.Sweeper); ok {
		err = errors.Join(err, s.Sweep(ctx, "status/", func(string) bool { return false }))
	}
	return err
}
