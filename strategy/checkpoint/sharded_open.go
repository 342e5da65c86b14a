package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// readManifest reads the bytes of a manifest without decoding them. It returns a [*CorruptError] if
// the file is damaged.
func readManifest(ctx context.Context, s storage.Store, name string) ([]byte, error) {
	data, err := storage.ReadAll(ctx, s, name, maxManifest)
	if err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrNotExist) {
		return nil, readError(s.String()+"/"+name, err)
	}
	return data, err
}

// decodeAnyManifest decodes and verifies a manifest, whether the checkpoint is sharded or
// single-file. It returns nil for the manifest of the other format. path is the name of the
// manifest in errors.
func decodeAnyManifest(data []byte, path string) (plain *plainManifest, sharded *shardedManifest, err error) {
	if head, _ := readHead(data); head.Format == plainFormat {
		plain, err = parsePlainManifest(data)
	} else {
		sharded, err = parseSharded(data)
	}
	if later := (*errkind.Fault)(nil); errors.Is(err, ErrVersion) && errors.As(err, &later) {
		later.Subject = path
		return nil, nil, later
	}
	if err != nil {
		return nil, nil, &CorruptError{File: path, Reason: "no manifest", Err: err}
	}
	return plain, sharded, nil
}

// readStepManifest reads and verifies a step's manifest. If there is none, the error matches
// [storage.ErrNotExist].
func readStepManifest(ctx context.Context, s storage.Store, step int64) (plain *plainManifest,
	sharded *shardedManifest, err error) {
	data, err := readManifest(ctx, s, manifestName(step))
	if err != nil {
		return nil, nil, err
	}
	path := s.String() + "/" + manifestName(step)
	if plain, sharded, err = decodeAnyManifest(data, path); err != nil {
		return nil, nil, err
	}
	var got int64
	if plain != nil {
		got = plain.Step
	} else {
		got = sharded.Step
	}
	if got != step {
		return nil, nil, &CorruptError{File: path, Reason: fmt.Sprintf("it is of step %d", got)}
	}
	return plain, sharded, nil
}

// openSharded opens a sharded checkpoint whose manifest is already verified.
func openSharded(ctx context.Context, s storage.Store, m *shardedManifest) (*Checkpoint, error) {
	step := m.Step
	path := s.String() + "/" + manifestName(step)
	c := &Checkpoint{path: path, sharded: m, step: m.Step, metadata: m.Metadata, objects: []*object{}}
	for _, v := range m.Variables {
		info := v.info()
		c.variables = append(c.variables, variable{Info: info, dtype: v.DType, bytes: int64(info.Shape.ByteSize()),
			elementSize: int64(v.DType.Bits() / 8)})
	}
	parts := make([]*partManifest, len(m.Hosts))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for host := range m.Hosts {
		group.Go(func() (err error) {
			parts[host], err = c.readPart(within, s, host)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for host, p := range parts {
		name := shardsName(step, m.Save, host)
		if p.HeaderBytes < 1 || p.HeaderBytes > p.Bytes {
			return nil, &CorruptError{File: s.String() + "/" + partName(step, m.Save, host),
				Reason: fmt.Sprintf("a header of %d bytes in a file of %d", p.HeaderBytes, p.Bytes)}
		}
		c.objects = append(c.objects, &object{name: s.String() + "/" + name, size: p.Bytes, headerSize: p.HeaderBytes,
			headerSum: p.HeaderCRC32C,
			open:      func(ctx context.Context) (storage.Object, error) { return s.Open(ctx, name) }})
		for _, r := range p.Regions {
			if r.Variable < 0 || r.Variable >= len(c.variables) {
				return nil, &CorruptError{File: path, Reason: fmt.Sprintf("part %d has variable %d of %d", host, r.Variable,
					len(c.variables))}
			}
			v := &c.variables[r.Variable]
			g, err := r.toRegion(host, v, p.Bytes)
			if err != nil {
				return nil, &CorruptError{File: s.String() + "/" + partName(step, m.Save, host), Variable: v.Path,
					Reason: "no part", Err: err}
			}
			v.regions = append(v.regions, g)
		}
	}
	for i := range c.variables {
		if err := c.variables[i].checkCoverage(); err != nil {
			return nil, &CorruptError{File: path, Variable: c.variables[i].Path, Reason: "its parts do not cover it", Err: err}
		}
	}
	return c, nil
}

// readPart reads the partManifest of a process. It returns an error if the partManifest does not
// match the checkpoint's manifest.
func (c *Checkpoint) readPart(ctx context.Context, s storage.Store, host int) (*partManifest, error) {
	m := c.sharded
	name := partName(m.Step, m.Save, host)
	corrupt := func(reason string, err error) error {
		return &CorruptError{File: s.String() + "/" + name, Reason: reason, Err: err}
	}
	data, err := readManifest(ctx, s, name)
	if errors.Is(err, storage.ErrNotExist) {
		return nil, corrupt("the file is missing", err)
	}
	if err != nil {
		return nil, err
	}
	if want := m.Hosts[host]; int64(len(data)) != want.Bytes || checksum(0).update(data) != want.CRC32C {
		return nil, corrupt(fmt.Sprintf("it has %d bytes of checksum %s, %d of %s were written", len(data),
			checksum(0).update(data), want.Bytes, want.CRC32C), nil)
	}
	p, err := parsePart(data, m.Step, m.Save, host, len(m.Hosts))
	if err != nil {
		return nil, corrupt("no part", err)
	}
	return p, nil
}

// checkCoverage returns an error unless each element of the variable is stored in exactly one
// region.
func (v *variable) checkCoverage() error {
	total := int64(0)
	boxes := make([]region, len(v.regions))
	for i, g := range v.regions {
		if total += g.bytes; total > v.bytes {
			break
		}
		boxes[i] = g
	}
	if total != v.bytes {
		return formatError("they have %d bytes of %d", total, v.bytes)
	}
	return checkDisjoint(boxes)
}

// checkDisjoint returns an error if two boxes overlap. It recursively divides the boxes at planes
// that no box crosses. This separates the shards of a mesh completely. If no such plane exists, it
// compares all pairs of boxes.
func checkDisjoint(boxes []region) error {
	if len(boxes) < 2 {
		return nil
	}
	for d := range boxes[0].start {
		slices.SortFunc(boxes, func(a, b region) int { return cmp.Compare(a.start[d], b.start[d]) })
		first, end := 0, boxes[0].start[d]+boxes[0].size[d]
		for i, g := range boxes {
			if g.start[d] >= end {
				if err := checkDisjoint(boxes[first:i]); err != nil {
					return err
				}
				first = i
			}
			end = max(end, g.start[d]+g.size[d])
		}
		if first > 0 {
			return checkDisjoint(boxes[first:])
		}
	}
	last := len(boxes[0].start) - 1 // the boxes are sorted by this dimension
	for i, a := range boxes {
		for _, b := range boxes[i+1:] {
			if last >= 0 && b.start[last] >= a.start[last]+a.size[last] {
				break
			}
			common := true
			for d := range a.start {
				common = common && a.start[d] < b.start[d]+b.size[d] && b.start[d] < a.start[d]+a.size[d]
			}
			if common {
				return formatError("two overlap, which begin at %v and %v", a.start, b.start)
			}
		}
	}
	return nil
}
