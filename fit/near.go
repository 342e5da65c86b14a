package fit

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/fit/replay"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/peers"
)

// Near saves a run on its own hosts, more often than a bucket could take it: each host's shards lie in
// a folder of its own and in that of the next host, so that the loss of one host loses none. A run that
// resumes takes the newest checkpoint that is whole, of these and of those of the Checkpoint hook. The
// zero value saves none.
//
// Two such checkpoints are kept, beside one that is being saved: three times the state of the run over
// the hosts, and as much again for the copies. A save that fails is a warning, as the next is near.
type Near struct {
	// Folder is one of each host, such as /dev/shm/run, which is memory, or one on a local disk. Runs
	// may share it: each has a part by a name that lies beside its checkpoints.
	Folder string
	// Every is the interval. A step that the Checkpoint hook saves is not saved here, too.
	Every Every
}

// check returns what is wrong with the options.
func (n Near) check(dir string) error {
	if (n.Folder == "") != (n.Every == 0) || n.Every < 0 || storage.IsURL(n.Folder) {
		return option("hook checkpoint "+dir, "give a folder of each host, and an interval of at least 1", "option Near has the folder %q and the interval %d", n.Folder, n.Every)
	}
	return nil
}

// keepNear is the number of checkpoints that are kept on the hosts.
const keepNear = 2

// saver returns the saver on the hosts, nil without one.
func (n Near) saver(of CheckpointOptions) *saver {
	if n.Folder == "" {
		return nil
	}
	return &saver{path: n.Folder, opts: CheckpointOptions{Keep: keepNear, With: of.With, Without: of.Without, Restore: of.Restore}}
}

// openNear opens the places on the hosts. All processes call it.
func (v *saver) openNear(ctx context.Context, r *run) error {
	local, name, err := v.local(ctx, r)
	if err := r.agree(ctx, err, nil); err != nil {
		return err
	}
	n := v.near
	if err := v.apart(ctx, r); err != nil {
		return err
	}
	text, err := r.strategy.BroadcastBytes(ctx, "fit: the name of the run", []byte(name)) // the first process's is that of all
	if err != nil {
		return err
	}
	all, err := peers.Open(ctx, storage.Sub(local, string(text)), peers.Options{Process: r.strategy.Process(), Gather: r.gather, Logger: r.log})
	if err == nil {
		n.store = all
		err = n.open(ctx, r)
	}
	return r.agree(ctx, err, nil)
}

// apart refuses a folder that several processes of one machine share, on all processes: what one of
// them puts there would be the other's.
func (v *saver) apart(ctx context.Context, r *run) error {
	machine, _ := os.Hostname() // without one, folders alone tell the processes apart
	folder, err := filepath.Abs(v.near.path)
	if err != nil {
		return err
	}
	all, err := r.gather(r.firm(ctx), "fit: the hosts' folders", []byte(machine+":"+folder))
	if err != nil {
		return err
	}
	first := map[string]int{}
	for i, at := range all {
		if other, ok := first[string(at)]; ok {
			return option("hook checkpoint "+v.path, "give each process a folder of its own", "processes %d and %d have the same folder Near, %s", other, i, at)
		}
		first[string(at)] = i
	}
	return nil
}

// nameOfRun is the object beside the checkpoints of a run with the name under which its hosts keep
// theirs.
const nameOfRun = "run.id"

// local opens this host's folder, and on the first process reads the name of the run, or makes it.
func (v *saver) local(ctx context.Context, r *run) (local storage.Store, name string, err error) {
	folder, err := filepath.Abs(v.near.path)
	if err == nil {
		local, err = storage.Directory(folder)
	}
	if err != nil || !r.state.First() {
		return local, "", err
	}
	place, err := storage.Open(ctx, v.path)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	text, err := storage.ReadOrPut(ctx, place, nameOfRun, []byte(rand.Text()), 1<<10)
	return local, string(text), err
}

// saveNear saves the run on the hosts.
func (v *saver) saveNear(ctx context.Context, s *State) {
	if err := v.near.save(ctx, s.run); err != nil {
		s.Warn("fit: training goes on without this checkpoint on the hosts", "error", err)
	}
}

// endNear ends the saves on the hosts. It is called where the run ends, with its error.
func (v *saver) endNear(ctx context.Context, r *run, err error) {
	n := v.near
	if n == nil || n.store == nil {
		return
	}
	if errors.As(err, new(*replay.Error)) && n.manager != nil {
		if err := n.manager.RemoveAfter(r.firm(ctx), r.clean); err != nil {
			r.log.Warn("fit: checkpoints on the hosts may have wrong bits", "after step", r.clean, "error", err)
		}
	}
	if err := n.end(r); err != nil {
		r.log.Warn("fit: the last checkpoint on the hosts is lost", "error", err)
	}
	if r.agreed { // the others' saves may need this host until they are over
		_ = r.agree(context.WithoutCancel(ctx), nil, nil)
	}
	_ = n.store.Close()
	n.store = nil
}
