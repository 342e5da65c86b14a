package input

import (
	"context"
	"io"
	"math/bits"
	"slices"
)

// ShuffleOptions configures [Dataset.Shuffle]. The zero value uses seed 0 and a different order in
// each pass.
type ShuffleOptions struct {
	Seed          uint64
	SameEachEpoch bool // use the same order in every pass
}

// Shuffle yields the elements in a random order, like tf.data's Dataset.shuffle. It keeps a buffer
// of elements, yields a random element of the buffer, and replaces it with the next element of the
// input. If all elements fit into the buffer, all orders are equally likely. The order depends only
// on the seed and the pass, so it is the same on all processes.
//
// The saved position contains the indices of the buffered elements, not the elements. A restore
// reads these elements again, so the input must yield the same elements again.
func (d Dataset) Shuffle(buffer int, opts ShuffleOptions) Dataset {
	if buffer < 1 {
		return invalidDataset("shuffle", "give at least 1", "a buffer of %d elements", buffer)
	}
	return d.derive(keepInfo, func(ctx context.Context, src Source, pass Pass, start State) (Iterator, error) {
		s := &shuffleIterator{size: buffer, rng: splitMix64(opts.Seed)}
		if !opts.SameEachEpoch {
			s.rng ^= splitMix64(pass.Epoch + 0x51ed270b)
		}
		if err := s.open(ctx, src, pass, start); err != nil {
			return nil, err
		}
		return s, nil
	})
}

type bufferedElement struct {
	index int64
	lazyElement
}

type savedPosition struct {
	index int64
	state State
}

type shuffleIterator struct {
	in        Iterator
	size      int
	rng       uint64
	buffer    []bufferedElement
	numRead   int64 // number of elements read from the input
	ended     bool
	positions []savedPosition // saved positions of the input; the first is at or before the oldest element in buffer
}

// numShuffleCounters is the number of counters in a State before the indices of the buffered elements:
// the two halves of the generator's state, numRead, ended, and the index of the saved input position.
const numShuffleCounters = 5

func (s *shuffleIterator) open(ctx context.Context, src Source, pass Pass, start State) (err error) {
	inner, base := State{}, int64(0)
	var want []int64
	if !start.IsZero() {
		if start.Op != "shuffle" || len(start.Counters) < numShuffleCounters ||
			len(start.Counters) > numShuffleCounters+s.size || len(start.Inputs) != 1 {
			return stateError("not a position of a shuffle with a buffer of %d", s.size)
		}
		if err := start.checkCounters(); err != nil {
			return err
		}
		s.rng = uint64(start.Counters[0])<<32 | uint64(uint32(start.Counters[1]))
		s.numRead, s.ended, base = start.Counters[2], start.Counters[3] != 0, start.Counters[4]
		want, inner = start.Counters[numShuffleCounters:], start.Inputs[0]
		for _, ord := range want {
			if ord < base || ord >= s.numRead {
				return stateError("a shuffle buffer holds element %d, read were %d to %d", ord, base, s.numRead)
			}
		}
		if base > s.numRead {
			return stateError("a shuffle mark at %d of %d elements", base, s.numRead)
		}
	}
	if s.in, err = src.Open(ctx, pass, inner); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.in.Close()
		}
	}()
	s.positions = []savedPosition{{base, inner}}
	if start.IsZero() {
		if s.positions[0].state, err = s.in.State(); err != nil {
			return err
		}
	}
	return s.refillBuffer(ctx, base, want)
}

// refillBuffer reads the elements with the indices base to s.numRead-1 again. It fills the buffer
// with the elements whose indices are in want, in the order of want.
func (s *shuffleIterator) refillBuffer(ctx context.Context, base int64, want []int64) error {
	places := make(map[int64]int, len(want))
	for i, ord := range want {
		places[ord] = i
	}
	if len(places) != len(want) {
		return stateError("a shuffle buffer holds an element twice")
	}
	s.buffer = make([]bufferedElement, len(want))
	for ord := base; ord < s.numRead; ord++ {
		r, err := nextRange(ctx, s.in, 1)
		if err == io.EOF {
			return stateError("the data ends at element %d, the position is %d", ord, s.numRead)
		} else if err != nil {
			return err
		}
		if i, ok := places[ord]; ok {
			s.buffer[i] = bufferedElement{ord, r.lazyElement}
		}
	}
	return nil
}

// readInput reads one element. After each s.size elements it saves the input's position.
func (s *shuffleIterator) readInput(ctx context.Context) (bufferedElement, error) {
	if s.numRead-s.positions[len(s.positions)-1].index >= int64(s.size) {
		state, err := s.in.State()
		if err != nil {
			return bufferedElement{}, err
		}
		s.positions = append(s.positions, savedPosition{s.numRead, state})
		s.dropOldPositions()
	}
	r, err := nextRange(ctx, s.in, 1)
	if err != nil {
		return bufferedElement{}, err
	}
	s.numRead++
	return bufferedElement{s.numRead - 1, r.lazyElement}, nil
}

// dropOldPositions removes the saved positions that are not needed to restore the buffer.
func (s *shuffleIterator) dropOldPositions() {
	oldest := s.numRead
	for _, h := range s.buffer {
		oldest = min(oldest, h.index)
	}
	for len(s.positions) > 1 && s.positions[1].index <= oldest {
		s.positions = slices.Delete(s.positions, 0, 1)
	}
}

func (s *shuffleIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, s) }

func (s *shuffleIterator) nextRange(ctx context.Context, _ int) (elementRange, error) {
	for !s.ended && len(s.buffer) < s.size {
		h, err := s.readInput(ctx)
		if err == io.EOF {
			s.ended = true
			break
		} else if err != nil {
			return elementRange{}, err
		}
		s.buffer = append(s.buffer, h)
	}
	if len(s.buffer) == 0 {
		return elementRange{}, io.EOF
	}
	i := s.randomInt(len(s.buffer))
	out := s.buffer[i]
	last := len(s.buffer) - 1
	s.buffer[i] = s.buffer[last]
	s.buffer[last] = bufferedElement{}
	s.buffer = s.buffer[:last]
	return elementRange{out.lazyElement, 1}, nil
}

func (s *shuffleIterator) State() (State, error) {
	s.dropOldPositions()
	counters := []int64{int64(s.rng >> 32), int64(s.rng & 0xffffffff), s.numRead, boolToInt64(s.ended),
		s.positions[0].index}
	for _, h := range s.buffer {
		counters = append(counters, h.index)
	}
	return State{Op: "shuffle", Counters: counters, Inputs: []State{s.positions[0].state}}, nil
}

func (s *shuffleIterator) Close() error { return s.in.Close() }

func (s *shuffleIterator) randomInt(n int) int {
	for {
		s.rng += 0x9e3779b97f4a7c15
		hi, lo := bits.Mul64(splitMix64(s.rng), uint64(n))
		if lo >= -uint64(n)%uint64(n) {
			return int(hi)
		}
	}
}

// splitMix64 is the finalizer of the splitmix64 generator. Its results must never change, because
// saved positions and other processes depend on them.
func splitMix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
