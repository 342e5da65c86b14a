package input

import (
	"context"
	"io"
	"math/bits"
	"slices"
)

// ShuffleOptions configures [Dataset.Shuffle]. The zero value has seed 0 and a different order in
// each pass.
type ShuffleOptions struct {
	Seed          uint64
	SameEachEpoch bool // use the same order in every pass
}

// Shuffle yields the elements in a random order, like tf.data's Dataset.shuffle. It keeps a buffer
// of elements, yields a random element of the buffer, and replaces it with the next element of the
// input. If the buffer is large enough for all elements, all orders are equally likely. The order
// depends only on the seed and the pass, so it is the same on all processes.
//
// The saved position contains the indices of the buffered elements, not the elements. A restore
// reads the elements again, beginning at a position at or before the oldest buffered element. The
// input must therefore yield the same elements again.
func (d Dataset) Shuffle(buffer int, opts ShuffleOptions) Dataset {
	if buffer < 1 {
		return fail("shuffle", "give at least 1", "a buffer of %d elements", buffer)
	}
	return d.derive(unchanged, func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
		s := &shuffler{size: buffer, rng: mix(opts.Seed)}
		if !opts.SameEachEpoch {
			s.rng ^= mix(pass.Epoch + 0x51ed270b)
		}
		if err := s.open(ctx, in, pass, from); err != nil {
			return nil, err
		}
		return s, nil
	})
}

type slot struct {
	ord int64
	item
}

type bookmark struct {
	ord   int64
	state State
}

type shuffler struct {
	in     Iterator
	size   int
	rng    uint64
	buf    []slot
	pulled int64 // number of elements read from the input
	ended  bool
	marks  []bookmark // positions of the input; the first is at or before the oldest element in buf
}

// shuffleFixed is the number of counters of a saved position before the buffer: the two halves of
// the generator's state, pulled, ended, and the index of the mark.
const shuffleFixed = 5

func (s *shuffler) open(ctx context.Context, in Source, pass Pass, from State) (err error) {
	inner, base := State{}, int64(0)
	var want []int64
	if !from.IsZero() {
		if from.Op != "shuffle" || len(from.At) < shuffleFixed || len(from.At) > shuffleFixed+s.size || len(from.In) != 1 {
			return misfit("not a position of a shuffle with a buffer of %d", s.size)
		}
		if err := from.checkAt(); err != nil {
			return err
		}
		s.rng = uint64(from.At[0])<<32 | uint64(uint32(from.At[1]))
		s.pulled, s.ended, base = from.At[2], from.At[3] != 0, from.At[4]
		want, inner = from.At[shuffleFixed:], from.In[0]
		for _, ord := range want {
			if ord < base || ord >= s.pulled {
				return misfit("a shuffle buffer holds element %d, read were %d to %d", ord, base, s.pulled)
			}
		}
		if base > s.pulled {
			return misfit("a shuffle mark at %d of %d elements", base, s.pulled)
		}
	}
	if s.in, err = in.Open(ctx, pass, inner); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.in.Close()
		}
	}()
	s.marks = []bookmark{{base, inner}}
	if from.IsZero() {
		if s.marks[0].state, err = s.in.State(); err != nil {
			return err
		}
	}
	return s.reread(ctx, base, want)
}

// reread reads the elements from base to s.pulled again, and fills the buffer with those whose
// indices are in want, in that order.
func (s *shuffler) reread(ctx context.Context, base int64, want []int64) error {
	places := make(map[int64]int, len(want))
	for i, ord := range want {
		places[ord] = i
	}
	if len(places) != len(want) {
		return misfit("a shuffle buffer holds an element twice")
	}
	s.buf = make([]slot, len(want))
	for ord := base; ord < s.pulled; ord++ {
		r, err := nextRun(ctx, s.in, 1)
		if err == io.EOF {
			return misfit("the data ends at element %d, the position is %d", ord, s.pulled)
		} else if err != nil {
			return err
		}
		if i, ok := places[ord]; ok {
			s.buf[i] = slot{ord, r.item}
		}
	}
	return nil
}

// pull reads one element from the input. It records a mark once per buffer size.
func (s *shuffler) pull(ctx context.Context) (slot, error) {
	if s.pulled-s.marks[len(s.marks)-1].ord >= int64(s.size) {
		state, err := s.in.State()
		if err != nil {
			return slot{}, err
		}
		s.marks = append(s.marks, bookmark{s.pulled, state})
		s.forget()
	}
	r, err := nextRun(ctx, s.in, 1)
	if err != nil {
		return slot{}, err
	}
	s.pulled++
	return slot{s.pulled - 1, r.item}, nil
}

// forget removes the marks that no element in the buffer needs.
func (s *shuffler) forget() {
	oldest := s.pulled
	for _, h := range s.buf {
		oldest = min(oldest, h.ord)
	}
	for len(s.marks) > 1 && s.marks[1].ord <= oldest {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
}

func (s *shuffler) Next(ctx context.Context) (Element, error) { return next(ctx, s) }

func (s *shuffler) nextRun(ctx context.Context, _ int) (run, error) {
	for !s.ended && len(s.buf) < s.size {
		h, err := s.pull(ctx)
		if err == io.EOF {
			s.ended = true
			break
		} else if err != nil {
			return run{}, err
		}
		s.buf = append(s.buf, h)
	}
	if len(s.buf) == 0 {
		return run{}, io.EOF
	}
	i := s.below(len(s.buf))
	out := s.buf[i]
	last := len(s.buf) - 1
	s.buf[i] = s.buf[last]
	s.buf[last] = slot{}
	s.buf = s.buf[:last]
	return run{out.item, 1}, nil
}

func (s *shuffler) State() (State, error) {
	s.forget()
	at := []int64{int64(s.rng >> 32), int64(s.rng & 0xffffffff), s.pulled, flag(s.ended), s.marks[0].ord}
	for _, h := range s.buf {
		at = append(at, h.ord)
	}
	return State{Op: "shuffle", At: at, In: []State{s.marks[0].state}}, nil
}

func (s *shuffler) Close() error { return s.in.Close() }

// below returns a uniformly distributed random number from 0 to n-1.
func (s *shuffler) below(n int) int {
	for {
		s.rng += 0x9e3779b97f4a7c15
		hi, lo := bits.Mul64(mix(s.rng), uint64(n))
		if lo >= -uint64(n)%uint64(n) {
			return int(hi)
		}
	}
}

// mix is the finalizer of the splitmix64 generator. It is implemented here because its results must
// not change: saved positions and other processes depend on them.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
