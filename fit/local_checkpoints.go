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

// LocalCheckpoints configures additional checkpoints on the hosts, on a local disk or in memory.
// They can be saved more often than checkpoints in an object store. Each host writes its shards to
// its own folder and to the folder of the next host, so that the loss of one host loses no data. A
// resumed run uses the latest checkpoint that is not damaged, local or not. The zero value saves no
// local checkpoints.
//
// While a local checkpoint is being saved, the two previous ones are kept. The hosts together
// therefore need space for six copies of the training state: three checkpoints, each stored on two
// hosts. An error of a local save is only a warning.
type LocalCheckpoints struct {
	// Folder is a folder of each host: on a local disk, or in memory such as /dev/shm/run. Several
	// runs can share it, because each run uses a subfolder. The name of the subfolder is stored
	// with the checkpoints of the Checkpoint hook.
	Folder string
	// Every is the interval of local checkpoints. Steps that the Checkpoint hook saves are skipped.
	Every Every
}

// validate returns an error for invalid options. dir is the checkpoint directory, for the error.
func (n LocalCheckpoints) validate(dir string) error {
	if (n.Folder == "") != (n.Every == 0) || n.Every < 0 || storage.IsURL(n.Folder) {
		return optionError("hook checkpoint "+dir, "give a folder of each host, and an interval of at least 1",
			"option Near has the folder %q and the interval %d", n.Folder, n.Every)
	}
	return nil
}

// keepLocal is the number of local checkpoints that are kept.
const keepLocal = 2

// newSaver returns a saver for local checkpoints, or nil if they are disabled.
func (n LocalCheckpoints) newSaver(opts CheckpointOptions) *saver {
	if n.Folder == "" {
		return nil
	}
	return &saver{path: n.Folder, opts: CheckpointOptions{Keep: keepLocal, Include: opts.Include, Exclude: opts.Exclude,
		Restore: opts.Restore}}
}

// openLocal opens the local checkpoints of the run. All processes must call it.
func (v *saver) openLocal(ctx context.Context, r *runner) error {
	local, name, err := v.openLocalFolder(ctx, r)
	if err := r.exchangeVotes(ctx, err, nil); err != nil {
		return err
	}
	n := v.local
	if err := v.checkDistinctFolders(ctx, r); err != nil {
		return err
	}
	runName, err := r.strategy.BroadcastBytes(ctx, "fit: the name of the run", []byte(name)) // the name of process 0
	if err != nil {
		return err
	}
	all, err := peers.Open(ctx, storage.Sub(local, string(runName)),
		peers.Options{Process: r.strategy.Process(), Gather: r.gather, Logger: r.log})
	if err == nil {
		n.store = all
		err = n.open(ctx, r)
	}
	return r.exchangeVotes(ctx, err, nil)
}

// checkDistinctFolders returns an error on all processes if two processes of one machine have the
// same local folder, because they would overwrite each other's files.
func (v *saver) checkDistinctFolders(ctx context.Context, r *runner) error {
	machine, _ := os.Hostname() // without a host name, the folders alone must differ
	folder, err := filepath.Abs(v.local.path)
	if err != nil {
		return err
	}
	all, err := r.gather(r.withoutInterrupt(ctx), "fit: the hosts' folders", []byte(machine+":"+folder))
	if err != nil {
		return err
	}
	first := map[string]int{}
	for i, folderKey := range all {
		if other, ok := first[string(folderKey)]; ok {
			return optionError("hook checkpoint "+v.path, "give each process its own folder",
				"processes %d and %d have the same folder Near, %s", other, i, folderKey)
		}
		first[string(folderKey)] = i
	}
	return nil
}

// runNameObject is the name of the object in the checkpoint directory that contains the name of the
// run's local subfolder.
const runNameObject = "run.id"

// openLocalFolder opens the local folder of this host. On process 0 it also returns the name of the
// run's subfolder, which it creates for a new run.
func (v *saver) openLocalFolder(ctx context.Context, r *runner) (local storage.Store, name string, err error) {
	folder, err := filepath.Abs(v.local.path)
	if err == nil {
		local, err = storage.Directory(folder)
	}
	if err != nil || !r.state.IsChief() {
		return local, "", err
	}
	store, err := storage.Open(ctx, v.path)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	text, err := storage.ReadOrPut(ctx, store, runNameObject, []byte(rand.Text()), 1<<10)
	return local, string(text), err
}

// saveLocal saves a local checkpoint. An error is logged as a warning.
func (v *saver) saveLocal(ctx context.Context, s *State) {
	if err := v.local.save(ctx, s.runner); err != nil {
		s.Warn("fit: training continues without this local checkpoint", "error", err)
	}
}

// closeLocal waits for the last local save and closes the store. If err is a [*replay.Error], it
// also removes the local checkpoints that may contain wrong values.
func (v *saver) closeLocal(ctx context.Context, r *runner, err error) {
	local := v.local
	if local == nil || local.store == nil {
		return
	}
	if errors.As(err, new(*replay.Error)) && local.manager != nil {
		if err := local.manager.RemoveAfter(r.withoutInterrupt(ctx), r.lastVerified); err != nil {
			r.log.Warn("fit: local checkpoints may contain wrong values", "after step", r.lastVerified, "error", err)
		}
	}
	if err := local.close(r); err != nil {
		r.log.Warn("fit: the last local checkpoint was not saved", "error", err)
	}
	if r.inAgreement { // the saves of other processes may need this host
		_ = r.exchangeVotes(context.WithoutCancel(ctx), nil, nil)
	}
	_ = local.store.Close()
	local.store = nil
}
