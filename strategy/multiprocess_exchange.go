package strategy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Processes exchange small host values through a collective on their devices: a row of words for
// each device, gathered by all. All devices take part, with equal rows for those of a process: TPU
// compilers refuse collectives over a part of a slice. No server, no port and no other network is
// needed than what steps use.
//
// An exchange is a launch like any other: all processes make it, in the same order among their
// steps. Each message says what it is for, so that processes which got out of step read so instead
// of each other's data.

// exchange is the program that gathers a row of a number of words from each device.
type exchange struct {
	executable system.Executable
	devices    []*pjrt.Device // of this process, in launch order
	words      int
}

// firstWords is the room for a message that is gathered in one launch: with the header, 508 bytes.
const firstWords = 128

// maxMessage bounds a message, in bytes. Exchanges are for small values.
const maxMessage = 1 << 20

// OrderError reports that the processes of a job called the strategy in different orders: each
// waits for the others in another call.
type OrderError struct {
	// Calls are the calls that the processes are in, by process.
	Calls []string
}

// Error says which call each process is in.
func (e *OrderError) Error() string {
	calls := make([]string, len(e.Calls))
	for i, call := range e.Calls {
		calls[i] = fmt.Sprintf("process %d is at %s", i, call)
	}
	return errkind.Text("strategy: the processes are out of step", strings.Join(calls, ", "), nil, "make the same calls in the same order on each")
}

// Kind returns RuntimeError.
func (e *OrderError) Kind() Kind { return RuntimeError }

// GatherBytes exchanges bytes between the processes: every process passes its own and receives the
// bytes of all processes, by process. All processes call it with the same name, which says what the
// bytes are; if a process is in another call, all receive an [*OrderError]. The bytes of a process
// may have any length up to a megabyte together with the name. The context bounds the wait for the
// other processes; where a process does not come, the error is that of the system's runtime, or the
// context's.
//
// It costs a launch, and a copy of half a kilobyte for each device to the host. It waits for the
// steps that were launched before it.
func (s *TPUStrategy) GatherBytes(ctx context.Context, name string, mine []byte) ([][]byte, error) {
	return s.gatherBytes(ctx, "gather "+name, mine)
}

// Barrier waits until every process has called Barrier with this name.
func (s *TPUStrategy) Barrier(ctx context.Context, name string) error {
	_, err := s.gatherBytes(ctx, "barrier "+name, nil)
	return err
}

// BroadcastBytes returns the bytes that process 0 passes on every process. The bytes of the other
// processes are ignored. All processes call it with the same name.
func (s *TPUStrategy) BroadcastBytes(ctx context.Context, name string, value []byte) ([]byte, error) {
	if s.processes.process != 0 {
		value = nil
	}
	all, err := s.gatherBytes(ctx, "broadcast "+name, value)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// AnyProcess reports whether any process passes true. All processes call it. It is the function for
// input.Options.AnyProcess.
func (s *TPUStrategy) AnyProcess(ctx context.Context, mine bool) (bool, error) {
	var vote []byte
	if mine {
		vote = []byte{1}
	}
	all, err := s.gatherBytes(ctx, "vote", vote)
	return slices.ContainsFunc(all, func(v []byte) bool { return len(v) > 0 }), err
}

// gatherBytes exchanges messages. One that does not fit the first launch follows in a second one,
// which all make, as all see the lengths.
func (s *TPUStrategy) gatherBytes(ctx context.Context, call string, mine []byte) ([][]byte, error) {
	if err := untraced(ctx, call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(call)+len(mine) > maxMessage {
		return nil, fault.New(ValueError, call, "keep it on the devices, or write a file", "%d bytes, where %d are the most", len(mine), maxMessage-len(call))
	}
	if !s.processes.several() {
		return [][]byte{slices.Clone(mine)}, nil
	}
	defer activity.Begin(ctx, activity.Exchange, call)()
	message := appendMessage(nil, call, mine)
	rows, longest, err := s.exchangeOnce(ctx, call, firstWords, message)
	if err == nil && longest > 4*firstWords-4 {
		words := 1 << bits.Len(uint(longest+3)/4)
		rows, _, err = s.exchangeOnce(ctx, call, words, message)
	}
	if err != nil {
		return nil, fault.Of(call, err, "")
	}
	return readMessages(call, rows)
}

// readMessages returns the values of the messages of all processes, which must be of one call.
func readMessages(call string, rows [][]byte) ([][]byte, error) {
	calls, values := make([]string, len(rows)), make([][]byte, len(rows))
	same := true
	for i, row := range rows {
		var ok bool
		if calls[i], values[i], ok = parseMessage(row); !ok {
			return nil, fault.New(errkind.InternalError, call, "start the same program on each process", "process %d sent %d bytes that are no message", i, len(row))
		}
		same = same && calls[i] == call
	}
	if !same {
		return nil, &OrderError{Calls: calls}
	}
	return values, nil
}

// appendMessage writes a message: the length of the call's name, the name, the value.
func appendMessage(b []byte, call string, value []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(call)))
	return append(append(b, call...), value...)
}

// parseMessage reads what appendMessage writes. The value is a copy.
func parseMessage(b []byte) (call string, value []byte, ok bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n, rest := binary.LittleEndian.Uint32(b), b[4:]
	if uint64(n) > uint64(len(rest)) {
		return "", nil, false
	}
	return string(rest[:n]), slices.Clone(rest[n:]), true
}

// exchangeOnce gathers messages, cut to the room there is, and tells the longest message's real
// length.
func (s *TPUStrategy) exchangeOnce(ctx context.Context, call string, words int, message []byte) (rows [][]byte, longest int, err error) {
	l, err := s.launchExchange(ctx, words, message)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	return l.read(ctx)
}

// launched is an exchange that is launched: rows on their way.
type launched struct {
	strategy *TPUStrategy
	words    int
	ins      [][]*pjrt.Buffer
	outs     [][]*pjrt.Buffer
}

// launchExchange launches the gathering of messages, cut to the room there is.
func (s *TPUStrategy) launchExchange(ctx context.Context, words int, message []byte) (_ *launched, err error) {
	x, err := s.exchange(ctx, words)
	if err != nil {
		return nil, err
	}
	row := make([]byte, 4*words)
	binary.LittleEndian.PutUint32(row, uint32(len(message)))
	copy(row[4:], message)
	rt := s.sys.Runtime()
	l := &launched{strategy: s, words: words, ins: make([][]*pjrt.Buffer, len(x.devices)), outs: make([][]*pjrt.Buffer, len(x.devices))}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for d, device := range x.devices {
		in, err := rt.BufferFromHost(ctx, row, pjrt.S32, []int{1, words}, device)
		if err != nil {
			return nil, err
		}
		l.ins[d], l.outs[d] = []*pjrt.Buffer{in}, []*pjrt.Buffer{nil}
	}
	s.launch.Lock()
	defer s.launch.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	return l, x.executable.Execute(ctx, l.ins, l.outs, pjrt.ExecuteOptions{})
}

// read waits for the rows.
func (l *launched) read(ctx context.Context) (rows [][]byte, longest int, err error) {
	s, words := l.strategy, l.words
	all := make([]byte, 4*words*len(s.devices))
	if err := l.outs[0][0].ToHost(ctx, all); err != nil {
		if ctx.Err() != nil {
			err = &Error{Op: "strategy: waiting for the other processes", Reason: fmt.Sprintf("not all of the %d processes came", s.processes.count), Err: err,
				Hint: "see whether each of them still runs, and makes the same calls"}
		}
		return nil, 0, err
	}
	for i := range s.processes.count {
		d := slices.Index(s.processes.of, i)
		row := all[d*4*words : (d+1)*4*words]
		n := int(binary.LittleEndian.Uint32(row))
		longest = max(longest, n)
		rows = append(rows, row[4:4+min(n, 4*words-4)])
	}
	if longest > maxMessage+4 {
		return nil, 0, fault.New(errkind.InternalError, "message", "start the same program on each process", "%d bytes, where %d are the most", longest, maxMessage)
	}
	return rows, longest, nil
}

// close releases what the exchange holds on the devices, when it has run.
func (l *launched) close() error {
	var errs []error
	for d := range l.ins {
		errs = append(errs, closeAll(l.ins[d]), closeAll(l.outs[d]))
	}
	l.ins, l.outs = nil, nil
	return errors.Join(errs...)
}

// exchange returns the program for rows of a number of words, compiling it once.
func (s *TPUStrategy) exchange(ctx context.Context, words int) (*exchange, error) {
	s.exchanging.Lock()
	defer s.exchanging.Unlock()
	if x := s.exchangeOf(words); x != nil {
		return x, nil
	}
	x := &exchange{words: words}
	var err error
	x.executable, err = s.sys.Runtime().Compile(ctx, pjrt.Program{Code: exchangeText(len(s.devices), words), Format: pjrt.FormatMLIR}, s.compileOptions(1))
	if err != nil {
		return nil, err
	}
	x.devices = x.executable.AddressableDevices()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrClosed, x.executable.Close())
	}
	s.exchanges = append(s.exchanges, x)
	return x, nil
}

func (s *TPUStrategy) exchangeOf(words int) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.exchanges, func(x *exchange) bool { return x.words == words }); i >= 0 {
		return s.exchanges[i]
	}
	return nil
}

// exchangeText is the program: each device holds a row, each receives all.
func exchangeText(devices, words int) []byte {
	return fmt.Appendf(nil, `module @exchange attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = %[1]d : i32} {
  sdy.mesh @mesh = <["device"=%[1]d]>
  func.func public @main(%%mine: tensor<%[1]dx%[2]dxi32> {sdy.sharding = #sdy.sharding<@mesh, [{"device"}, {}]>}) -> (tensor<%[1]dx%[2]dxi32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %%all = sdy.sharding_constraint %%mine <@mesh, [{}, {}]> : tensor<%[1]dx%[2]dxi32>
    return %%all : tensor<%[1]dx%[2]dxi32>
  }
}
`, devices, words)
}
