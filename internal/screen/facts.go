package screen

import (
	"crypto/sha256"
	"math"
)

// Facts are what the maker of a program knows of it: the operations that compilers may not survive,
// as values, and how large and how deep the rest is. A program with facts needs no second reading
// of its text. They are of one text: see [Facts.Of].
type Facts struct {
	functions Region
	depth     int
	double    bool // complex<f64>
	err       error
	text      [sha256.Size]byte
}

// Function adds a function and those of its operations that are looked at; all others are known to
// harm no compiler.
func (f *Facts) Function(name string, ops []*Operation) {
	f.functions.Ops = append(f.functions.Ops, &Operation{Name: "func.func", Symbol: name, Regions: []*Region{{Ops: append(ops, &Operation{Name: "func.return"})}}})
}

// Tensor adds the shape of a tensor, and whether its elements are complex numbers of 128 bits.
func (f *Facts) Tensor(dims []int, double bool) {
	f.double = f.double || double
	total := uint64(1)
	for _, d := range dims {
		if d > 0 && total > math.MaxInt64/16/uint64(d) && f.err == nil {
			f.err = codeError("a tensor of shape %v has more elements than memory can address", dims)
			return
		}
		total *= uint64(max(d, 1))
	}
}

// Nested adds how deep brackets are within each other.
func (f *Facts) Nested(depth int) { f.depth = max(f.depth, depth) }

// Of binds the facts to the text that was written of them.
func (f *Facts) Of(text []byte) { f.text = sha256.Sum256(text) }

// Check says what of the program is known to crash compilers, as [MLIR] does of a text. known is
// false if the facts are of another text.
func (f *Facts) Check(text []byte, o Options) (known bool, err error) {
	if f == nil || sha256.Sum256(text) != f.text {
		return false, nil
	}
	switch {
	case f.err != nil:
		return true, f.err
	case f.depth > maxNesting:
		return true, codeError("closures are nested in others so deep that brackets are, more than %d, which overflows the compiler's stack: use a function", maxNesting)
	case f.double && o.TPU && o.Partitions > 1:
		return true, codeError("it has tensors of complex numbers of 128 bits, which crash the TPU compiler as it partitions the program: use Complex64")
	}
	c := newChecker(o)
	if err := c.region(&f.functions); err != nil {
		return true, err
	}
	return true, c.finish()
}
