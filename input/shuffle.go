package input

import (
	"context"
	"io"
	"math/bits"
	"slices"
)

// ShuffleOptions chooses the random order. The zero value has seed 0 and another order in each
// pass.
type ShuffleOptions struct {
	Seed          uint64
	SameEachEpoch bool // gives every pass, of Repeat and of a DistributedDataset, the same order
}

// Shuffle yields the elements in a random order, as tf.data's Dataset.shuffle does: it holds buffer
// elements, yields one of them at random, and puts the next element in its place. If the buffer has
// room for all elements, all orders are equally likely. The order depends on seed and pass alone,
// so all processes agree on it.
//
// The saved position holds the numbers of the buffered elements, not the elements. A restore reads
// the elements again, from a position at most about two buffers before the oldest. The input
// therefore has to yield the same elements again.
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
	pulled int64 // elements taken from the input
	ended  bool
	marks  []bookmark // positions of the input; the first is not after the oldest element in buf
}

// Counters of a saved position: two halves of the generator, pulled, ended, number of the mark,
// then the buffer.
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

// reread fills the buffer with the wanted elements, in that order, and brings the input to where it
// was.
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

// pull takes one element from the input.
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

// forget drops the marks that no element in the buffer needs any more.
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

// below draws a number from 0 to n-1, without bias.
func (s *shuffler) below(n int) int {
	for {
		s.rng += 0x9e3779b97f4a7c15
		hi, lo := bits.Mul64(mix(s.rng), uint64(n))
		if lo >= -uint64(n)%uint64(n) {
			return int(hi)
		}
	}
}

// mix is the finalizer of the splitmix64 generator. The generator is spelled out here because saved
// positions and other processes rely on its numbers.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
