package input

import (
	"context"
	"errors"
)

// Zip yields tuples of the elements with the same number of all datasets, in their order, and ends
// with the shortest. It is tf.data's Dataset.zip. Zip datasets before they are batched, or in batches
// of one size. When processes divide files, each dataset's files are divided alike: file number i of
// one has to belong to file number i of the others.
func Zip(datasets ...Dataset) Dataset {
	if len(datasets) == 0 {
		return fail("zip", "give at least one", "no datasets")
	}
	z := make(zip, len(datasets))
	for i, d := range datasets {
		if d.Err() != nil {
			return d
		}
		z[i] = d.source()
	}
	return Dataset{z}
}

type zip []Source

func (z zip) Info() Info {
	info := z[0].Info()
	specs := make([]Spec, len(z))
	for i, s := range z {
		next := s.Info()
		specs[i] = next.Spec
		switch {
		case info.Cardinality == Infinite:
			info.Cardinality = next.Cardinality
		case next.Cardinality == Infinite:
		case info.Cardinality == UnknownCardinality || next.Cardinality == UnknownCardinality:
			info.Cardinality = UnknownCardinality
		default:
			info.Cardinality = min(info.Cardinality, next.Cardinality)
		}
		switch {
		case info.BatchSize == 0 || next.BatchSize == 0:
			info.BatchSize = 0
		case info.BatchSize != next.BatchSize:
			info.BatchSize = Unknown
		}
		info.Files, info.recut = info.Files || next.Files, info.recut || next.recut
	}
	info.Spec = Tuple(specs...)
	for _, s := range specs {
		if s.IsZero() {
			info.Spec = Spec{}
		}
	}
	return info
}

func (z zip) ShardFiles(num, index int) (Source, error) {
	out := make(zip, len(z))
	for i, s := range z {
		part, err := shardFiles(s, num, index)
		if err != nil {
			return nil, err
		}
		out[i] = part
	}
	return out, nil
}

func (z zip) Open(ctx context.Context, pass Pass, from State) (Iterator, error) {
	if !from.IsZero() {
		if err := from.want("zip", 0, len(z)); err != nil {
			return nil, err
		}
	}
	it := make(zipIterator, 0, len(z))
	for i, s := range z {
		inner := State{}
		if !from.IsZero() {
			inner = from.In[i]
		}
		one, err := s.Open(ctx, pass, inner)
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		it = append(it, one)
	}
	return it, nil
}

type zipIterator []Iterator

func (z zipIterator) Next(ctx context.Context) (Element, error) {
	members := make([]Element, len(z))
	for i, it := range z {
		var err error
		if members[i], err = it.Next(ctx); err != nil {
			return Element{}, err
		}
	}
	return Tuple(members...), nil
}

func (z zipIterator) State() (State, error) {
	s := State{Op: "zip", In: make([]State, len(z))}
	for i, it := range z {
		var err error
		if s.In[i], err = it.State(); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

func (z zipIterator) Close() error {
	var err error
	for _, it := range z {
		err = errors.Join(err, it.Close())
	}
	return err
}
