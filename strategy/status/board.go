package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/storage"
)

// Board is where the hosts of a run put their records. It is safe for concurrent use.
type Board struct {
	place   place
	name    string
	objects bool
}

// Folder is the name of the folder of the records, below the place of a run.
const Folder = "status"

// Open opens the board of a run by its place: a folder, or the URL of a store that package storage
// knows, such as gs://bucket/run where the program imports the package for it. A folder need not be
// there yet.
func Open(ctx context.Context, run string) (*Board, error) {
	if run == "" {
		return nil, &errkind.Fault{Op: "status: open", Reason: "no place", Hint: "give the run's folder or URL", Class: errkind.ValueError}
	}
	if files.Local(run) == nil {
		return &Board{place: folder{filepath.Join(run, Folder)}, name: run}, nil
	}
	s, err := storage.Open(ctx, run)
	if err != nil {
		return nil, err
	}
	return &Board{place: objects{s}, name: run, objects: true}, nil
}

// In returns the board of a run whose place is a store that is open. The store stays the caller's.
func In(s storage.Store) *Board {
	return &Board{place: objects{unclosed{s}}, name: s.String(), objects: true}
}

// String returns the place.
func (b *Board) String() string { return b.name }

// Objects reports whether the records are objects, each of which costs a request.
func (b *Board) Objects() bool { return b.objects }

// Put puts a record in the place of the host's last one.
func (b *Board) Put(ctx context.Context, r *Record) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	return b.failed("put", nameOf(r.Host), b.place.put(ctx, nameOf(r.Host), data))
}

// PutText puts a text of a host beside its record, such as its goroutines.
func (b *Board) PutText(ctx context.Context, host int, what, text string) error {
	name := fmt.Sprintf("host-%04d.%s.txt", host, what)
	return b.failed("put", name, b.place.put(ctx, name, []byte(text)))
}

// TextName returns the file of a text of a host.
func (b *Board) TextName(host int, what string) string {
	return fmt.Sprintf("%s/%s/host-%04d.%s.txt", b.name, Folder, host, what)
}

// Read reads the records of all hosts, of any run, by host. Records that cannot be read are left
// out, and unreadable says why, each an error that names the file. Err is that of the listing.
func (b *Board) Read(ctx context.Context) (all []Record, unreadable []error, err error) {
	names, err := b.place.names(ctx)
	if err != nil {
		return nil, nil, b.failed("list", Folder, err)
	}
	var hosts []int
	for _, name := range names {
		if host, ok := hostOf(name); ok {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	type answer struct {
		record Record
		err    error
	}
	answers := make([]answer, len(hosts))
	var group errgroup.Group
	group.SetLimit(1)
	if b.objects {
		group.SetLimit(16)
	}
	for i, host := range hosts {
		group.Go(func() error {
			answers[i].record, answers[i].err = b.Get(ctx, host)
			return nil
		})
	}
	_ = group.Wait()
	for _, a := range answers {
		switch {
		case a.err == nil:
			all = append(all, a.record)
		case !errors.Is(a.err, fs.ErrNotExist): // removed since it was listed
			unreadable = append(unreadable, a.err)
		}
	}
	return all, unreadable, nil
}

// Get reads the last record of a host, of any run. Without one the error matches fs.ErrNotExist.
func (b *Board) Get(ctx context.Context, host int) (Record, error) {
	name := nameOf(host)
	data, err := b.place.get(ctx, name)
	if err != nil {
		return Record{}, b.failed("read", name, err)
	}
	r, err := Parse(data)
	if err == nil && r.Host != host {
		err = &errkind.Fault{Match: ErrRecord, Reason: fmt.Sprintf("it is of host %d", r.Host)}
	}
	return r, b.failed("read", name, err)
}

// Clear removes the records of hosts that a run of so many hosts does not have.
func (b *Board) Clear(ctx context.Context, hosts int) error {
	names, err := b.place.names(ctx)
	if err != nil {
		return b.failed("list", Folder, err)
	}
	for _, name := range names {
		if host, ok := hostOf(name); ok && host >= hosts {
			err = errors.Join(err, b.failed("remove", name, b.place.remove(ctx, name)))
		}
	}
	return err
}

// Close releases what the board holds. The records stay.
func (b *Board) Close() error { return b.place.close() }

func (b *Board) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &errkind.Fault{Op: "status: " + op, Subject: name + " in " + b.name, Err: err}
}

func nameOf(host int) string { return fmt.Sprintf("host-%04d.json", host) }

// hostOf returns the host of a record's name.
func hostOf(name string) (host int, ok bool) {
	_, err := fmt.Sscanf(name, "host-%d.json", &host)
	return host, err == nil && host >= 0 && nameOf(host) == name
}

// objects is a place in a store.
type objects struct{ store storage.Store }

func (o objects) put(ctx context.Context, name string, data []byte) error {
	return storage.PutBytes(ctx, o.store, Folder+"/"+name, data, storage.PutOptions{})
}

func (o objects) get(ctx context.Context, name string) ([]byte, error) {
	return storage.ReadAll(ctx, o.store, Folder+"/"+name, maxRecord)
}

func (o objects) names(ctx context.Context) ([]string, error) {
	infos, err := o.store.List(ctx, Folder+"/host-")
	var all []string
	for _, i := range infos {
		all = append(all, strings.TrimPrefix(i.Name, Folder+"/"))
	}
	return all, err
}

func (o objects) remove(ctx context.Context, name string) error {
	return o.store.Remove(ctx, Folder+"/"+name)
}

func (o objects) close() error { return o.store.Close() }

// unclosed is a store of the caller's.
type unclosed struct{ storage.Store }

func (unclosed) Close() error { return nil }
