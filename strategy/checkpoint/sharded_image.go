package checkpoint

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/internal/staging"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// hostImage is the content of a process's tensor file in host memory. A save copies the variables
// into the image and writes the image to the store at the same time.
type hostImage struct {
	memory     []byte
	headerSize int
	regions    []imageRegion // in the order of the file

	mu     sync.Mutex
	cond   *sync.Cond
	filled int   // number of filled regions before the first unfilled one
	err    error // argument of abort, or nil
}

// imageRegion is the part of a hostImage that has one region of a variable.
type imageRegion struct {
	plannedRegion
	offset   int64 // offset in the file
	isFilled bool  // guarded by hostImage.mu
	sums     []checksum
}

// alignment is the alignment in bytes of the data in a host's tensor file. It allows direct disk writes.
const alignment = 4 << 10

// newImage creates an image for the regions that a process saves. memory is the memory of an
// earlier image, or nil. newImage reuses or frees this memory, and returns the memory to pass to
// the next call.
func newImage(p *savePlan, host int, metadata map[string]string, memory []byte) (*hostImage, []byte, error) {
	m := &hostImage{}
	m.cond = sync.NewCond(&m.mu)
	var specs []safetensors.Spec
	byName := map[string]plannedRegion{}
	for _, r := range p.regions {
		if r.host != host {
			continue
		}
		name := p.tensorName(r)
		if _, exists := byName[name]; exists {
			return nil, memory, variableError(p.values[r.variable].Path, "the name of its part is another variable's",
				"give the variable another path", nil)
		}
		byName[name] = r
		specs = append(specs, safetensors.Spec{Name: name, DType: p.values[r.variable].DType, Shape: r.size})
	}
	header, layout, err := safetensors.EncodeHeader(specs, metadata, alignment)
	if err != nil {
		return nil, memory, wrapError("lay out tensors", "", err)
	}
	total := int64(len(header))
	for _, t := range layout {
		m.regions = append(m.regions, imageRegion{plannedRegion: byName[t.Name], offset: int64(len(header)) + t.Offset,
			sums: make([]checksum, numBlocks(t.Bytes))})
		total += t.Bytes
	}
	if int64(len(memory)) < total || int64(len(memory)) > total+total/16+1<<20 {
		if memory != nil {
			staging.Free(memory)
		}
		if memory, err = staging.Alloc(int(total)); err != nil {
			return nil, nil, wrapError("save", "", err)
		}
	}
	m.memory, m.headerSize = memory[:total:total], len(header)
	copy(m.memory, header)
	return m, memory, nil
}

func (m *hostImage) regionMemory(i int) []byte {
	r := &m.regions[i]
	return m.memory[r.offset:][:r.bytes:r.bytes]
}

// copyVariables copies this process's regions into the image. First it reads the variables that are
// saved as one value instead of as shards, in the order of the group. All processes must read these
// variables, even if another process saves them. Then it copies the shards from the devices.
func (m *hostImage) copyVariables(ctx context.Context, g Group, p *savePlan, s *strategy.TPUStrategy, host int) error {
	regionsOf := map[int][]int{} // region indices by variable
	for i, r := range m.regions {
		regionsOf[r.variable] = append(regionsOf[r.variable], i)
	}
	for _, r := range p.regions {
		variables := strategyOf(g.Variables[r.variable])
		if r.onDevice || r.host != host && (variables == nil || variables.NumProcesses() < 2) {
			continue
		}
		value, err := g.Variables[r.variable].SaveValue(ctx)
		if err == nil && r.host == host { // other implementations of Variable may ignore ctx
			err = ctx.Err()
		}
		if err != nil {
			return variableError(p.values[r.variable].Path, "not read", "", err)
		}
		if r.host != host {
			continue
		}
		if !value.Shape().Equal(g.Variables[r.variable].Shape()) {
			return variableError(p.values[r.variable].Path, fmt.Sprintf("its value is %s, its shape was %s", value.Shape(),
				g.Variables[r.variable].Shape()), "", nil)
		}
		i := regionsOf[r.variable][0]
		if err := value.ConstBytes(func(data []byte) { copy(m.regionMemory(i), data) }); err != nil {
			return variableError(p.values[r.variable].Path, "not read", "", err)
		}
		m.markFilled(i)
	}
	var copies []engine.ShardCopy
	var variables []*strategy.Variable
	for i, r := range m.regions {
		if r.onDevice {
			v := g.Variables[r.variable].(*strategy.Variable)
			s = v.Strategy()
			copies = append(copies, engine.ShardCopy{Partition: r.replica*s.NumLogicalDevices() + r.device,
				Into: m.regionMemory(i), Done: func() { m.markFilled(i) }})
			variables = append(variables, v)
		}
	}
	if len(copies) == 0 {
		return nil
	}
	on := engine.Internal(s)
	return on.WithBuffers(ctx, "reading variables", variables,
		func(layouts []*engine.Layout, old []engine.Buffers) ([]engine.Buffers, error) {
			for i := range copies {
				copies[i].Name, copies[i].Layout, copies[i].From = fmt.Sprintf("variable %q",
					variables[i].Path()), layouts[i], old[i]
			}
			return nil, on.Runtime().CopyShardsToHost(ctx, copies)
		})
}

// markFilled records that all bytes of region i are in the image.
func (m *hostImage) markFilled(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.regions[i].isFilled = true
	for m.filled < len(m.regions) && m.regions[m.filled].isFilled {
		m.filled++
	}
	m.cond.Broadcast()
}

// abort makes all calls that wait for regions return err.
func (m *hostImage) abort(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	m.cond.Broadcast()
}

func (m *hostImage) abortError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// waitFilled waits until the first n regions are in the image.
func (m *hostImage) waitFilled(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.filled < n && m.err == nil {
		m.cond.Wait()
	}
	if m.filled < n {
		return m.err
	}
	return nil
}

// writeTo writes the image to w. It waits for each region that is not in the image yet. It may be
// called repeatedly, to retry a failed write.
func (m *hostImage) writeTo(ctx context.Context, w io.Writer) error {
	next := 0
	for at := 0; at < len(m.memory); at += maxReadBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := min(at+maxReadBytes, len(m.memory))
		for next < len(m.regions) && m.regions[next].offset < int64(end) {
			next++
		}
		if err := m.waitFilled(next); err != nil {
			return err
		}
		if _, err := w.Write(m.memory[at:end]); err != nil {
			return err
		}
	}
	return nil
}

// computeChecksums computes the checksums of all regions. It waits for each region that is not in
// the image yet.
func (m *hostImage) computeChecksums(ctx context.Context) error {
	for i := range m.regions {
		if err := m.waitFilled(i + 1); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		k := 0
		for block := range slices.Chunk(m.regionMemory(i), blockBytes) {
			m.regions[i].sums[k] = checksum(0).update(block)
			k++
		}
	}
	return nil
}

// partRegions describes the regions of the image for the process's manifest.
func (m *hostImage) partRegions() (regions []partRegion) {
	regions = []partRegion{}
	for _, r := range m.regions {
		var sums strings.Builder
		for _, s := range r.sums {
			sums.WriteString(s.String())
		}
		regions = append(regions, partRegion{Variable: r.variable, Start: r.start, Size: r.size, Offset: r.offset,
			Bytes: r.bytes, CRC32C: sums.String()})
	}
	return regions
}
