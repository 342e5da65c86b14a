package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Step runs a training step twice from the same variables and compares the results. It calls run,
// restores the variables, and calls run again; the results of the second call remain. number is the
// step's number, for errors. variables are all variables on the devices that the step reads or
// writes. All processes must call Step at the same point.
//
// If devices differ, Step returns an [*Error] on all processes. Other errors are errors of run and
// of copying the variables.
func Step(ctx context.Context, s *strategy.TPUStrategy, number int64, variables []*strategy.Variable,
	run func(ctx context.Context) error) error {
	r := &replayer{strategy: s, stepNumber: number, variables: variables}
	before, err := r.copyToHost(ctx)
	if err != nil {
		return err
	}
	if err := r.compareReplicas(ctx, "the replicas differ before it", before); err != nil {
		return err
	}
	if err := run(ctx); err != nil {
		return err
	}
	first, err := r.copyToHost(ctx)
	if err != nil {
		return err
	}
	if err := r.restoreVariables(ctx, before); err != nil {
		return err
	}
	if err := run(ctx); err != nil {
		return err
	}
	second, err := r.copyToHost(ctx)
	if err != nil {
		return err
	}
	if err := r.compareRuns(ctx, first, second); err != nil {
		return err
	}
	return r.compareReplicas(ctx, "the replicas differ after it", second)
}

type replayer struct {
	strategy   *strategy.TPUStrategy
	stepNumber int64
	variables  []*strategy.Variable
}

// copyToHost copies the bytes of the variables, including padding, from this process's devices to
// the host. The result is indexed by variable and partition. Partitions of other processes are nil.
func (r *replayer) copyToHost(ctx context.Context) ([][][]byte, error) {
	copies := make([][][]byte, len(r.variables))
	return copies, engine.Internal(r.strategy).WithBuffers(ctx, "copying variables", r.variables,
		func(at []*engine.Layout, held []engine.Buffers) ([]engine.Buffers, error) {
			for i, buffers := range held {
				copies[i] = make([][]byte, len(buffers))
				for p, b := range buffers {
					if b == nil || !engine.Internal(r.strategy).Runtime().Local[p] {
						continue
					}
					copies[i][p] = make([]byte, at[i].ShardBytes)
					if err := b.ToHost(ctx, copies[i][p]); err != nil {
						return nil, err
					}
				}
			}
			return nil, nil
		})
}

// restoreVariables copies the result of copyToHost back to the devices, one variable at a time. The
// devices need memory for a second copy of that variable.
func (r *replayer) restoreVariables(ctx context.Context, copies [][][]byte) error {
	on := engine.Internal(r.strategy).Runtime()
	for i := range copies {
		if err := engine.Internal(r.strategy).WithBuffers(ctx, "copying variables", r.variables[i:i+1],
			func(at []*engine.Layout, _ []engine.Buffers) ([]engine.Buffers, error) {
				fresh := on.Buffers()
				for p, data := range copies[i] {
					if data == nil {
						continue
					}
					var err error
					if fresh[p], err = on.System.Runtime().BufferFromHost(ctx, data, at[0].Type, at[0].Buffer,
						on.All[p]); err != nil {
						return nil, errors.Join(err, fresh.Close())
					}
				}
				return []engine.Buffers{fresh}, nil
			}); err != nil {
			return err
		}
	}
	return nil
}

// compareRuns compares the variables on each device after the first and the second run of the step.
func (r *replayer) compareRuns(ctx context.Context, first, second [][][]byte) error {
	var differ []int
	var names []string
	for i, v := range r.variables {
		for p := range first[i] {
			if bytes.Equal(first[i][p], second[i][p]) {
				continue
			}
			if !slices.Contains(differ, p) {
				differ = append(differ, p)
			}
			if !slices.Contains(names, v.Path()) {
				names = append(names, v.Path())
			}
		}
	}
	var message []byte
	for _, p := range differ {
		message = binary.AppendUvarint(message, uint64(p))
	}
	messages, err := r.strategy.GatherBytes(ctx, "replay: the second time", message)
	if err != nil {
		return err
	}
	differ = nil
	for _, text := range messages {
		for len(text) > 0 {
			p, n := binary.Uvarint(text)
			if n <= 0 {
				return &errkind.Fault{Op: "replay", Reason: "a process sent no list", Class: errkind.InternalError}
			}
			differ, text = append(differ, int(p)), text[n:]
		}
	}
	return r.differenceError("the second run had other results", differ, names)
}

// compareReplicas compares the copies of mirrored variables on the replicas with each other.
func (r *replayer) compareReplicas(ctx context.Context, reason string, copies [][][]byte) error {
	devices, _, _ := engine.Internal(r.strategy).DeviceNames()
	logical := len(devices[0])
	var message []byte
	for p := range len(devices) * logical {
		sum, here := sha256.New(), false
		for i, v := range r.variables {
			if engine.Internal(r.strategy).IsMirrored(v) && copies[i][p] != nil {
				sum.Write(copies[i][p])
				here = true
			}
		}
		if here {
			message = sum.Sum(binary.BigEndian.AppendUint32(message, uint32(p)))
		}
	}
	messages, err := r.strategy.GatherBytes(ctx, "replay: "+reason, message)
	if err != nil {
		return err
	}
	const entry = 4 + sha256.Size
	sums := map[int]string{}
	for _, text := range messages {
		for ; len(text) >= entry; text = text[entry:] {
			sums[int(binary.BigEndian.Uint32(text))] = string(text[4:entry])
		}
	}
	var differ []int
	for l := range logical {
		votes := map[string]int{}
		for replica := range devices {
			if sum, ok := sums[replica*logical+l]; ok {
				votes[sum]++
			}
		}
		counts := slices.Sorted(maps.Values(votes))
		slices.Reverse(counts)
		for replica := range devices { // the replicas in the minority, or all of them without a majority
			p := replica*logical + l
			if sum, ok := sums[p]; ok && len(counts) > 1 && (votes[sum] < counts[0] || counts[0] == counts[1]) {
				differ = append(differ, p)
			}
		}
	}
	var names []string
	for i, v := range r.variables {
		if engine.Internal(r.strategy).IsMirrored(v) && replicasDiffer(copies[i], logical) {
			names = append(names, v.Path())
		}
	}
	return r.differenceError(reason, differ, names)
}

// replicasDiffer reports whether the copies of a variable on this process's replicas differ.
func replicasDiffer(copies [][]byte, logical int) bool {
	for l := range logical {
		var one []byte
		for p := l; p < len(copies); p += logical {
			if one == nil {
				one = copies[p]
			}
			if copies[p] != nil && !bytes.Equal(one, copies[p]) {
				return true
			}
		}
	}
	return false
}

// differenceError returns an error for differing devices, or nil if there are none.
func (r *replayer) differenceError(reason string, differ []int, names []string) error {
	if len(differ) == 0 {
		return nil
	}
	devices, _, _ := engine.Internal(r.strategy).DeviceNames()
	logical := len(devices[0])
	slices.Sort(differ)
	e := &Error{Step: r.stepNumber, Reason: reason, Variables: names, AllDevices: len(differ) == len(devices)*logical &&
		len(differ) > 1}
	for _, p := range differ {
		e.Devices = append(e.Devices, fmt.Sprintf("replica %d, logical device %d (%s)", p/logical, p%logical,
			devices[p/logical][p%logical]))
	}
	return e
}
