package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Processes exchange small host values with a collective on their devices: each device has a row of
// words, and all rows are gathered. All devices participate, with equal rows on the devices of one
// process, because TPU compilers reject collectives over a part of a slice. An exchange needs no
// server, no port and no other network than programs.
//
// An exchange is a launch: all processes must run it in the same order relative to their other
// launches. Each message contains the name of its call, so that processes with different call
// orders receive an error instead of wrong data.

// exchange is a compiled program with which processes exchange messages. It gathers a row of 32-bit
// words from each device.
type exchange struct {
	program system.Executable
	devices []*pjrt.Device // the devices of this process, in launch order
	words   int
}

// firstWords is the number of 32-bit words of a row in the first launch of an exchange. Such a row
// contains a message of up to 508 bytes.
const firstWords = 128

// MaxMessage is the maximum size in bytes of a message and the name of its call together.
const MaxMessage = 1 << 20

// MaxAsyncMessage is the same limit for [Runtime.StartGather].
const MaxAsyncMessage = 4*firstWords - 4 - 4

// Gather sends the message mine to all processes and returns the messages of all processes, indexed
// by process. call is the name of the call, which must be the same on all processes. Otherwise all
// processes receive the error of [Options].OutOfStep. Gather runs a program on the devices. If a
// message and its name have more than 504 bytes, all processes run the program a second time.
func (m *Runtime) Gather(ctx context.Context, call string, mine []byte) ([][]byte, error) {
	if len(call)+len(mine) > MaxMessage {
		return nil, m.fault(errkind.ValueError, call, "keep it on the devices, or write a file",
			"%d bytes, where %d are the most", len(mine), MaxMessage-len(call))
	}
	if !m.IsMultiProcess() {
		return [][]byte{slices.Clone(mine)}, nil
	}
	defer activity.Begin(ctx, activity.Exchange, call)()
	message := appendMessage(nil, call, mine)
	rows, longest, err := m.gatherOnce(ctx, firstWords, message)
	if err == nil && longest > 4*firstWords-4 {
		rows, _, err = m.gatherOnce(ctx, 1<<bits.Len(uint(longest+3)/4), message)
	}
	if err != nil {
		return nil, m.wrapError(call, err)
	}
	return m.parseMessages(call, rows)
}

// CheckAgreement checks that all processes pass the same content. If they do not, every process
// receives the error of [Options].Differ, which is called with the first 300 bytes of text, a
// description of the content. All processes must call CheckAgreement.
func (m *Runtime) CheckAgreement(ctx context.Context, what, text string, content []byte) error {
	if !m.IsMultiProcess() {
		return nil
	}
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	sum := sha256.Sum256(content)
	all, err := m.Gather(ctx, "compare "+what, append(sum[:], text...))
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, row := range all {
		if len(row) < len(sum) {
			return m.fault(errkind.InternalError, "compare "+what, "start the same program on each process",
				"a fingerprint of %d bytes", len(row))
		}
		counts[string(row[:len(sum)])]++
	}
	if len(counts) == 1 {
		return nil
	}
	standard := string(all[0][:len(sum)])
	for _, row := range all {
		if key := string(row[:len(sum)]); counts[key] > counts[standard] {
			standard = key
		}
	}
	var texts []string
	var differing []int
	for i, row := range all {
		texts = append(texts, fmt.Sprintf("%s (%x)", row[len(sum):], row[:6]))
		if string(row[:len(sum)]) != standard {
			differing = append(differing, i)
		}
	}
	return m.opts.Differ(what, texts, differing)
}

// gatherOnce runs the exchange program once and returns the messages of all processes, each
// truncated to the given number of words. longest is the length in bytes of the longest message
// before it was truncated.
func (m *Runtime) gatherOnce(ctx context.Context, words int, message []byte) (rows [][]byte, longest int, err error) {
	s, err := m.send(ctx, words, message)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.receive(ctx)
}

// parseMessages returns the values in the messages of all processes. It returns an error if a
// message belongs to another call than the given one.
func (m *Runtime) parseMessages(call string, rows [][]byte) ([][]byte, error) {
	calls, values := make([]string, len(rows)), make([][]byte, len(rows))
	same := true
	for i, row := range rows {
		var ok bool
		if calls[i], values[i], ok = parseMessage(row); !ok {
			return nil, m.fault(errkind.InternalError, call, "start the same program on each process",
				"process %d sent %d bytes that are no message", i, len(row))
		}
		same = same && calls[i] == call
	}
	if !same {
		return nil, m.outOfStepError(calls)
	}
	return values, nil
}

// outOfStepError returns an error for processes that wait for each other in different calls of
// Gather.
func (m *Runtime) outOfStepError(calls []string) error {
	if m.opts.OutOfStep != nil {
		return m.opts.OutOfStep(calls)
	}
	return m.fault(errkind.RuntimeError, "exchange", "make the same calls in the same order on each",
		"the processes are at %q", calls)
}

// appendMessage appends the length of call, call itself and the value to b.
func appendMessage(b []byte, call string, value []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(call)))
	return append(append(b, call...), value...)
}

// parseMessage returns the call and the value of a message that appendMessage created. The value is
// a copy.
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

// pendingExchange is a launched exchange whose messages were not received yet.
type pendingExchange struct {
	runtime   *Runtime
	words     int
	ins, outs [][]*pjrt.Buffer
}

// send starts the exchange of a message with the other processes. It truncates the message to the
// given number of words.
func (m *Runtime) send(ctx context.Context, words int, message []byte) (_ *pendingExchange, err error) {
	x, err := m.compileExchange(ctx, words)
	if err != nil {
		return nil, err
	}
	row := make([]byte, 4*words)
	binary.LittleEndian.PutUint32(row, uint32(len(message)))
	copy(row[4:], message)
	s := &pendingExchange{runtime: m, words: words, ins: NewBufferTable(len(x.devices), 1),
		outs: NewBufferTable(len(x.devices), 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for i, device := range x.devices {
		if s.ins[i][0], err = m.System.Runtime().BufferFromHost(ctx, row, pjrt.S32, []int{1, words},
			device); err != nil {
			return nil, err
		}
	}
	m.Launch.Lock()
	defer m.Launch.Unlock()
	if err := m.Check(); err != nil {
		return nil, err
	}
	return s, x.program.Execute(ctx, s.ins, s.outs, pjrt.ExecuteOptions{})
}

// receive waits for the messages of all processes. longest is the length in bytes of the longest
// message before it was truncated.
func (s *pendingExchange) receive(ctx context.Context) (rows [][]byte, longest int, err error) {
	m, words := s.runtime, s.words
	all := make([]byte, 4*words*m.NumDevices())
	if err := s.outs[0][0].ToHost(ctx, all); err != nil {
		if ctx.Err() != nil {
			err = &errkind.Fault{Op: m.opts.ErrorPrefix + ": waiting for the other processes",
				Reason: fmt.Sprintf("not all of the %d processes came", m.Count), Err: err,
				Hint: "see whether each of them still runs, and makes the same calls"}
		}
		return nil, 0, err
	}
	for i := range m.Count {
		at := slices.Index(m.Of, i)
		row := all[at*4*words : (at+1)*4*words]
		n := int(binary.LittleEndian.Uint32(row))
		longest = max(longest, n)
		rows = append(rows, row[4:4+min(n, 4*words-4)])
	}
	if longest > MaxMessage+4 {
		return nil, 0, m.fault(errkind.InternalError, "message", "start the same program on each process",
			"%d bytes, where %d are the most", longest, MaxMessage)
	}
	return rows, longest, nil
}

// close releases the device buffers of the exchange after it has run.
func (s *pendingExchange) close() error {
	var errs []error
	for _, table := range [][][]*pjrt.Buffer{s.ins, s.outs} {
		for _, row := range table {
			errs = append(errs, Buffers(row).Close())
		}
	}
	s.ins, s.outs = nil, nil
	return errors.Join(errs...)
}

// compileExchange returns the exchange program for messages of the given number of words. It
// compiles the program on first use.
func (m *Runtime) compileExchange(ctx context.Context, words int) (*exchange, error) {
	m.exchanging.Lock()
	defer m.exchanging.Unlock()
	if x, err := m.findExchange(words); x != nil || err != nil {
		return x, err
	}
	program := pjrt.Program{Code: exchangeText(m.NumDevices(), words), Trusted: true}
	x, err := m.System.Runtime().Compile(ctx, program, m.Options(1))
	if err != nil {
		return nil, err
	}
	of := &exchange{program: x, devices: x.AddressableDevices(), words: words}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.Join(m.opts.Closed, x.Close())
	}
	m.exchanges = append(m.exchanges, of)
	return of, nil
}

// findExchange returns the exchange program for messages of the given number of words if it is
// already compiled, and otherwise nil. After Close it returns an error.
func (m *Runtime) findExchange(words int) (*exchange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, m.opts.Closed
	}
	if i := slices.IndexFunc(m.exchanges, func(x *exchange) bool { return x.words == words }); i >= 0 {
		return m.exchanges[i], nil
	}
	return nil, nil
}

// exchangeText returns the StableHLO text of a program that gathers one row from each device.
func exchangeText(devices, words int) []byte {
	return fmt.Appendf(nil, `module @exchange attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = %[1]d : i32} {
  sdy.mesh @mesh = <["device"=%[1]d]>
  func.func public @main(%%dine: tensor<%[1]dx%[2]dxi32> {sdy.sharding = #sdy.sharding<@mesh, [{"device"}, {}]>}) -> (tensor<%[1]dx%[2]dxi32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %%all = sdy.sharding_constraint %%dine <@mesh, [{}, {}]> : tensor<%[1]dx%[2]dxi32>
    return %%all : tensor<%[1]dx%[2]dxi32>
  }
}
`, devices, words)
}
