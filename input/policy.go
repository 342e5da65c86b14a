package input

import (
	"context"
	"errors"
	"fmt"
)

// Policy is how hosts divide a dataset. The numbers are TensorFlow's AutoShardPolicy.
type Policy int8

const (
	// Off divides nothing: every host reads everything and cuts all of it for its replicas.
	Off Policy = -1
	// Auto is File if the dataset reads files, and Data if it does not. It does not fall back to Data if there are fewer
	// files than hosts.
	Auto Policy = 0
	// File gives host i of H the files whose number is i modulo H. With one host it does nothing.
	File Policy = 1
	// Data has every host read everything and deals the replicas' chunks to the hosts in turn.
	Data Policy = 2
	// Hint divides where [Dataset.ShardHint] says so, and nowhere else.
	Hint Policy = 3
)

// String returns the constant's name.
func (p Policy) String() string {
	switch p {
	case Off:
		return "Off"
	case Auto:
		return "Auto"
	case File:
		return "File"
	case Data:
		return "Data"
	case Hint:
		return "Hint"
	}
	return fmt.Sprintf("Policy(%d)", int8(p))
}

// divide applies a policy to what one host reads, and returns the policy that really applied. Data stays to be done: it
// deals what is cut for the replicas.
func divide(src Source, policy Policy, hosts, host int) (Source, Policy, error) {
	switch policy {
	case Off, Data:
		return src, policy, nil
	case Hint:
		return placeHints(src, hosts, host), Hint, nil
	case File, Auto:
		if policy == File && hosts == 1 {
			return src, File, nil
		}
		part, err := shardFiles(src, hosts, host)
		var few *TooFewFilesError
		switch {
		case policy == Auto && errors.Is(err, ErrNotShardable):
			return src, Data, nil
		case hosts == 1 && errors.As(err, &few):
			return src, File, nil
		case hosts == 1 && err == nil:
			return src, File, nil
		}
		return part, File, err
	}
	return nil, policy, fmt.Errorf("input: unknown auto-shard policy %v", policy)
}

// ShardHint marks where the policy Hint divides the dataset: there it becomes Shard(hosts, host). Without that policy the
// dataset cannot be opened.
func (d Dataset) ShardHint() Dataset {
	return d.then(func(in Source) Source { return hint{in} })
}

type hint struct{ in Source }

func (h hint) Info() Info { return h.in.Info() }

func (h hint) Open(context.Context, Pass, State) (Iterator, error) {
	return nil, errors.New("input: ShardHint needs Distribute with the policy Hint: use Shard(num, index) otherwise")
}

func (h hint) ShardFiles(num, index int) (Source, error) {
	in, err := shardFiles(h.in, num, index)
	return hint{in}, err
}

func placeHints(src Source, num, index int) Source {
	switch s := src.(type) {
	case hint:
		return Dataset{placeHints(s.in, num, index)}.Shard(num, index).src
	case derived:
		s.in = placeHints(s.in, num, index)
		return s
	case cached:
		in := placeHints(s.in, num, index)
		if num > 1 {
			return cached{in: in, all: &store{}}
		}
		return cached{in: in, all: s.all}
	case concatenation:
		out := make(concatenation, len(s))
		for i, part := range s {
			out[i] = placeHints(part, num, index)
		}
		return out
	}
	return src
}
