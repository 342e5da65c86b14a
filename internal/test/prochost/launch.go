package prochost

import (
	"context"
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// execute launches a program with the arguments from the request and returns the bytes of the
// results.
func (s *session) execute(ctx context.Context, l *launchHeader, body []byte) (_ [][]byte, err error) {
	s.mu.Lock()
	x := s.programs[l.Executable]
	s.mu.Unlock()
	if x == nil {
		return nil, fault("execute", errkind.InvalidArgumentError, "there is no program %d", l.Executable)
	}
	devices := x.AddressableDevices()
	parts, err := split(body, len(devices), l.Arguments)
	if err != nil {
		return nil, err
	}
	args, results := make([][]*pjrt.Buffer, len(devices)), make([][]*pjrt.Buffer, len(devices))
	// Donated arguments are closed already. Results never share a buffer with an argument.
	defer func() { err = errors.Join(err, closeAll(args), closeAll(results)) }()
	rt := s.joined()
	for d, device := range devices {
		args[d], results[d] = make([]*pjrt.Buffer, len(l.Arguments)), make([]*pjrt.Buffer, len(x.outputs))
		for i, t := range l.Arguments {
			if args[d][i], err = rt.BufferFromHost(ctx, parts[d][i], t.Type, t.Dims, device); err != nil {
				return nil, err
			}
		}
	}
	if err := x.Execute(ctx, args, results, pjrt.ExecuteOptions{Donate: l.Donate, LaunchID: l.LaunchID}); err != nil {
		return nil, err
	}
	return s.fetch(results)
}

// fetch reads the results to host memory. The timeout of the wait for the other hosts does not
// apply, because the program is running.
func (s *session) fetch(results [][]*pjrt.Buffer) (parts [][]byte, err error) {
	size := 0
	for _, row := range results {
		for _, b := range row {
			size += b.Bytes()
		}
	}
	if int64(size) > s.machine.opts.MaxBytes {
		return nil, fault("execute", errkind.ResourceExhaustedError, "the results of the host take %d bytes, the limit is %d",
			size, s.machine.opts.MaxBytes)
	}
	all := make([]byte, size)
	rest := all
	for _, row := range results {
		for _, b := range row {
			n := b.Bytes()
			if err := b.ToHost(context.Background(), rest[:n:n]); err != nil {
				return nil, err
			}
			rest = rest[n:]
		}
	}
	return [][]byte{all}, nil
}

// closeAll closes all buffers that are not nil.
func closeAll(rows [][]*pjrt.Buffer) error {
	var errs []error
	for _, row := range rows {
		for _, b := range row {
			if b != nil {
				errs = append(errs, b.Close())
			}
		}
	}
	return errors.Join(errs...)
}
