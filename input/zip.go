package input

import (
	"context"
	"errors"
)

// Zip yields tuples of the elements with the same index in all datasets and ends with the shortest
// dataset, like tf.data's Dataset.zip. Zip datasets before batching, or with equal batch sizes. The
// policy [File] divides the files of every dataset by index, so files with the same index must
// contain corresponding elements.
func Zip(datasets ...Dataset) Dataset {
	if len(datasets) == 0 {
		return invalidDataset("zip", "give at least one", "no datasets")
	}
	z := make(zipSource, len(datasets))
	for i, d := range datasets {
		if d.Err() != nil {
			return d
		}
		z[i] = d.source()
	}
	return Dataset{z}
}

type zipSource []Source

func (z zipSource) Info() Info {
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
		info.mergeBatchSize(next)
	}
	info.Spec = Tuple(specs...)
	for _, s := range specs {
		if s.IsZero() {
			info.Spec = Spec{}
		}
	}
	return info
}

func (z zipSource) replaceInputs(replace func(Source) (Source, error), _ bool) (Source, error) {
	out, err := mapSources(z, replace)
	return zipSource(out), err
}

func (z zipSource) Open(ctx context.Context, pass Pass, start State) (Iterator, error) {
	start, err := start.forOp("zip", 0, len(z))
	if err != nil {
		return nil, err
	}
	it := make(zipIterator, 0, len(z))
	for i, s := range z {
		one, err := s.Open(ctx, pass, start.Inputs[i])
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
	s := State{Op: "zip", Inputs: make([]State, len(z))}
	for i, it := range z {
		var err error
		if s.Inputs[i], err = it.State(); err != nil {
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
