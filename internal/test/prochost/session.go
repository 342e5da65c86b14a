package prochost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

const (
	// greeting limits the time until a host sends its first request. maxGreeting is the maximum
	// size of the body of this request, which has no body.
	greeting    = 10 * time.Second
	maxGreeting = 0
	// maxCalls limits the concurrent requests of a host. maxPrograms limits its open programs.
	maxCalls    = 64
	maxPrograms = 1 << 14
)

// session is the connection of one host on the machine.
type session struct {
	machine *Machine
	conn    net.Conn
	ctx     context.Context
	cancel  context.CancelFunc
	process int
	run     *run
	calls   sync.WaitGroup
	slots   chan struct{}

	writing sync.Mutex

	mu       sync.Mutex
	runtime  system.Runtime // nil until the host has joined
	cancels  map[uint64]context.CancelCauseFunc
	programs map[int]*program
	made     int
}

// program is a program that the host has open.
type program struct {
	system.Executable
	outputs []tensor
}

func newSession(m *Machine, conn net.Conn) *session {
	ctx, cancel := context.WithCancel(m.ctx)
	return &session{machine: m, conn: conn, ctx: ctx, cancel: cancel, slots: make(chan struct{}, maxCalls),
		cancels: map[uint64]context.CancelCauseFunc{}, programs: map[int]*program{}}
}

// serve runs the session until the connection ends.
func (s *session) serve() {
	defer s.machine.forget(s)
	defer s.conn.Close()
	log := s.machine.opts.Logger.With("peer", s.conn.RemoteAddr())
	if err := s.greet(); err != nil {
		log.Warn("prochost: a peer was turned away", "error", err)
		s.cancel()
		return
	}
	log = log.With("run", s.run.name, "host", s.process)
	log.Info("prochost: a host came")
	err := s.read()
	log.Info("prochost: a host went", "error", err)
	_ = s.conn.Close()
	// The other hosts are notified before the waits of this host end, so that they report the lost
	// host as the cause.
	s.machine.leave(s.run, s.process)
	s.cancel()
	s.calls.Wait()
	s.end()
}

// end releases all programs of the host.
func (s *session) end() {
	for _, x := range s.programs {
		if err := x.Close(); err != nil {
			s.machine.opts.Logger.Warn("prochost: close a program", "error", err)
		}
	}
	if s.runtime != nil {
		if err := s.runtime.Close(); err != nil {
			s.machine.opts.Logger.Warn("prochost: close a host", "error", err)
		}
	}
}

// greet authenticates the peer and adds it to its run.
func (s *session) greet() error {
	if err := s.conn.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	var q request
	if _, err := readFrame(s.conn, &q, maxGreeting); err != nil {
		return err
	}
	h, m := q.Hello, s.machine
	err := func() error {
		if q.Op != opHello || h == nil {
			return fault("open", errkind.InvalidArgumentError, "a host begins with %q, not with %q", opHello, q.Op)
		}
		r, err := m.enter(s, h)
		s.run, s.process = r, h.Process
		return err
	}()
	answer := reply{ID: q.ID}
	if err != nil {
		answer.Error = newWireError(err)
	} else {
		answer.Welcome = &welcome{Platform: m.base.Platform(), Devices: m.devices, MeshShape: m.opts.MeshShape,
			Name: m.opts.Name(s.process), Patience: m.opts.Patience, MaxBytes: m.opts.MaxBytes}
	}
	if sent := s.send(answer); sent != nil && err == nil {
		m.leave(s.run, s.process)
		return sent
	}
	return err
}

// silence returns the time without a message after which a host counts as dead. Hosts send a
// heartbeat every second.
func (s *session) silence() time.Duration { return max(s.machine.opts.Patience, 10*time.Second) }

// send writes a frame. It closes the connection if the host does not accept the frame.
func (s *session) send(answer reply, body ...[]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.conn.SetWriteDeadline(time.Now().Add(s.silence()))
	if err == nil {
		err = writeFrame(s.conn, answer, body...)
	}
	if err != nil {
		_ = s.conn.Close()
	}
	return err
}

// read handles requests until the host closes the session. It returns nil in this case, and an
// error if the host violates the protocol or the connection fails.
func (s *session) read() error {
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(s.silence())); err != nil {
			return err
		}
		var q request
		body, err := readFrame(s.conn, &q, s.machine.opts.MaxBytes)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch q.Op {
		case opPing:
			if err := s.send(reply{ID: q.ID}); err != nil {
				return err
			}
			continue
		case opCancel:
			s.giveUp(q)
			continue
		case opClose:
			return nil
		}
		select {
		case s.slots <- struct{}{}:
		default:
			return fault("session", errkind.ResourceExhaustedError, "more than %d requests are under way", maxCalls)
		}
		ctx, cancel := context.WithCancelCause(s.ctx)
		s.mu.Lock()
		_, twice := s.cancels[q.ID]
		s.cancels[q.ID] = cancel
		s.mu.Unlock()
		if twice {
			cancel(nil)
			return fault("session", errkind.InvalidArgumentError, "request %d is under way twice", q.ID)
		}
		s.calls.Go(func() {
			defer func() { <-s.slots }()
			s.answer(ctx, q, body)
			s.mu.Lock()
			delete(s.cancels, q.ID)
			s.mu.Unlock()
			cancel(nil)
		})
	}
}

// giveUp cancels the context of a request.
func (s *session) giveUp(q request) {
	s.mu.Lock()
	cancel := s.cancels[q.Cancel]
	s.mu.Unlock()
	switch {
	case cancel == nil: // already answered
	case q.Deadline:
		cancel(context.DeadlineExceeded)
	default:
		cancel(context.Canceled)
	}
}

// answer executes a request and sends the reply.
func (s *session) answer(ctx context.Context, q request, body []byte) {
	answer := reply{ID: q.ID}
	var results [][]byte
	err := fault("session", errkind.InvalidArgumentError, "there is no request %q", q.Op)
	switch {
	case q.Op == opJoin:
		err = s.join(ctx)
	case s.joined() == nil:
		err = fault("session", errkind.FailedPreconditionError, "%q before %q", q.Op, opJoin)
	case q.Op == opCompile && q.Program != nil:
		answer.Compiled, err = s.compile(ctx, q.Program, body)
	case q.Op == opRelease:
		err = s.release(q.Executable)
	case q.Op == opExecute && q.Launch != nil:
		results, err = s.execute(ctx, q.Launch, body)
	}
	if err != nil {
		answer.Error, results = newWireError(err), nil
	}
	if err := s.send(answer, results...); err != nil {
		_ = s.conn.Close()
	}
}

// joined returns the host's runtime, or nil if the host has not joined.
func (s *session) joined() system.Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runtime
}

// join waits for the other hosts of the run.
func (s *session) join(ctx context.Context) error {
	if s.joined() != nil {
		return fault("open", errkind.FailedPreconditionError, "the host has joined")
	}
	rt, err := s.run.cluster.Connect(s.process)(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime = rt
	return nil
}

// compile compiles a program for the host.
func (s *session) compile(ctx context.Context, p *programs, code []byte) (*compiled, error) {
	opts, err := p.options()
	if err != nil {
		return nil, err
	}
	// Authenticated hosts are trusted, but only with programs in text form.
	x, err := s.joined().Compile(ctx, pjrt.Program{Code: code, Format: p.Format, Trusted: !bytes.HasPrefix(code,
		[]byte("ML\xefR"))}, opts)
	if err != nil {
		return nil, err
	}
	out, err := s.keep(x)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return out, nil
}

// keep registers a program of the host.
func (s *session) keep(x system.Executable) (*compiled, error) {
	loaded := system.UnwrapExecutable(x)
	if loaded == nil {
		return nil, fault("compile", errkind.InternalError, "the runtime of the machine does not give the plugin's program")
	}
	out := &compiled{}
	for _, d := range x.AddressableDevices() {
		out.Devices = append(out.Devices, d.ID())
	}
	for _, t := range loaded.Outputs() {
		out.Outputs = append(out.Outputs, tensor{t.DType, t.Dims})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.programs) >= maxPrograms {
		return nil, fault("compile", errkind.ResourceExhaustedError, "%d programs are open", len(s.programs))
	}
	s.made++
	out.Executable = s.made
	s.programs[s.made] = &program{Executable: x, outputs: out.Outputs}
	return out, nil
}

// release closes a program of the host.
func (s *session) release(id int) error {
	s.mu.Lock()
	x := s.programs[id]
	delete(s.programs, id)
	s.mu.Unlock()
	if x == nil {
		return fault("close executable", errkind.InvalidArgumentError, "there is no program %d", id)
	}
	return x.Close()
}
