package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// sizes are how much data the measurements take, in bytes but for the matrices.
type sizes struct {
	donated, transfer, memory int
	links                     []int
	matrix, products          int
	launches                  int
}

// sizesOf are those of a platform. What the CPU's devices give is no figure of anything: they run
// the same programs, small.
func sizesOf(platform string) sizes {
	if platform == "cpu" {
		return sizes{donated: 1 << 20, transfer: 1 << 20, memory: 1 << 20, links: []int{4 << 10, 256 << 10}, matrix: 64, products: 2, launches: 5}
	}
	return sizes{donated: 64 << 20, transfer: 64 << 20, memory: 1 << 29, links: []int{4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20}, matrix: 8192, products: 8, launches: 10}
}

func (w *work) sizes() sizes { return sizesOf(w.sys().Platform()) }

// memoryProgram reads and writes a tensor once.
func memoryProgram(sz sizes) raw {
	t := tensorType{pjrt.F32, []int{sz.memory / 4}}
	return raw{name: "memory", in: []tensorType{t}, out: []tensorType{t}, alias: true,
		body: fmt.Sprintf("    %%c = stablehlo.constant dense<1.0> : %[1]s\n    %%r0 = stablehlo.add %%x0, %%c : %[1]s\n", t)}
}

// linkProgram is an all-reduce, whose result is its argument again.
func linkProgram(n, bytes int) raw {
	t := tensorType{pjrt.F32, []int{bytes / 4}}
	return raw{name: fmt.Sprintf("all-reduce of %d bytes", bytes), in: []tensorType{t}, out: []tensorType{t}, alias: true,
		body: collectiveText("all_reduce_max", 0, t, t, [][]int{sequence(n)})}
}

// matmulProgram multiplies a matrix by another, again and again.
func matmulProgram(sz sizes) raw {
	t := tensorType{pjrt.BF16, []int{sz.matrix, sz.matrix}}
	p := raw{name: "matmul", in: []tensorType{t, t}, out: []tensorType{t}, alias: true}
	from := "%x0"
	for i := range sz.products {
		to := fmt.Sprintf("%%p%d", i)
		if i == sz.products-1 {
			to = "%r0"
		}
		p.body += fmt.Sprintf("    %s = stablehlo.dot_general %s, %%x1, contracting_dims = [1] x [0] : (%[3]s, %[3]s) -> %[3]s\n", to, from, t)
		from = to
	}
	return p
}

// timed runs a program that updates its first argument in place, and returns the best time of a
// launch, of three rounds of launches that are under way together.
func (w *work) timed(ctx context.Context, p raw, launches int, value func(argument int) []byte) (best time.Duration, err error) {
	w.at("%s", p.name)
	l, err := w.session.load(ctx, p)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.x.Close()) }()
	data := map[int][]byte{}
	args, err := l.put(ctx, w.session, func(_, i int) []byte {
		if data[i] == nil {
			data[i] = value(i)
		}
		return data[i]
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeRows(args)) }()
	run := func(times int) error {
		for range times {
			results, err := l.launch(ctx, args)
			if err != nil {
				return err
			}
			for d := range results {
				args[d][0] = results[d][0] // the donated one is gone
			}
		}
		return wait(ctx, args)
	}
	if err := run(2); err != nil {
		return 0, err
	}
	best = time.Hour
	for range 3 {
		began := time.Now()
		if err := run(launches); err != nil {
			return 0, err
		}
		best = min(best, time.Since(began)/time.Duration(launches))
	}
	return best, nil
}

// floats are bytes of small float32 or bfloat16 numbers.
func floats(t tensorType) []byte {
	one := numbers(t.dtype, 1)
	return slices.Repeat(one, t.elements())
}

// transfers copies to this host's devices, all at once, and back.
func transfers(ctx context.Context, w *work) error {
	sz := w.sizes()
	host := pjrt.AlignedBytes(sz.transfer)
	for i := range host {
		host[i] = byte(i * 7)
	}
	back := make([]byte, len(host))
	rt := w.sys().Runtime()
	var here []*pjrt.Device
	for _, d := range rt.Devices() {
		if rt.Addressable(d.ID()) {
			here = append(here, d)
		}
	}
	up, down := 0.0, 0.0
	for range 3 {
		var buffers [][]*pjrt.Buffer
		w.at("host to device")
		began := time.Now()
		for _, d := range here {
			b, err := rt.BufferFromHost(ctx, host, pjrt.U8, []int{len(host)}, d)
			if err != nil {
				return errors.Join(err, closeRows(buffers))
			}
			buffers = append(buffers, []*pjrt.Buffer{b})
		}
		err := wait(ctx, buffers)
		up = max(up, float64(len(here)*len(host))/time.Since(began).Seconds())
		w.at("device to host")
		began = time.Now()
		for i := 0; err == nil && i < len(buffers); i++ {
			clear(back[:16])
			if err = buffers[i][0].ToHost(ctx, back); err == nil && i == len(buffers)-1 {
				down = max(down, float64(len(here)*len(host))/time.Since(began).Seconds())
			}
			if err == nil {
				w.exactly(fmt.Sprintf("what comes back from device %d", here[i].ID()), pjrt.U8, back, host)
			}
		}
		if err := errors.Join(err, closeRows(buffers)); err != nil {
			return err
		}
	}
	w.figure(Figure{Name: "host to device, all of this host", Value: up / 1e9, Unit: "GB/s"})
	w.figure(Figure{Name: "device to host, one after another", Value: down / 1e9, Unit: "GB/s"})
	return nil
}

// memoryBandwidth measures a pass over a large tensor: a read and a write of each byte.
func memoryBandwidth(ctx context.Context, w *work) error {
	sz := w.sizes()
	p := memoryProgram(sz)
	t, err := w.timed(ctx, p, sz.launches, func(int) []byte { return floats(p.in[0]) })
	if err != nil {
		return err
	}
	f := Figure{Name: "memory, read and written", Value: 2 * float64(sz.memory) / t.Seconds() / 1e9, Unit: "GB/s"}
	w.against(f, func(of tpu.Generation) float64 { return of.HBMBandwidth / 1e9 })
	return nil
}

// links measures all-reduces of all devices. The bandwidth is that of a ring's links, 2(n-1)/n of
// the bytes in the time.
func links(ctx context.Context, w *work) error {
	n := w.n()
	if n == 1 {
		w.fact("links", "there is one device")
		return nil
	}
	for _, bytes := range w.sizes().links {
		p := linkProgram(n, bytes)
		t, err := w.timed(ctx, p, w.sizes().launches, func(int) []byte { return floats(p.in[0]) })
		if err != nil {
			return err
		}
		w.figure(Figure{Name: fmt.Sprintf("all-reduce of %d KiB, time", bytes>>10), Value: t.Seconds() * 1e6, Unit: "us"})
		w.figure(Figure{Name: fmt.Sprintf("all-reduce of %d KiB, bus", bytes>>10), Value: 2 * float64(n-1) / float64(n) * float64(bytes) / t.Seconds() / 1e9, Unit: "GB/s"})
	}
	return nil
}

// matmul measures products of bfloat16 matrices on each device.
func matmul(ctx context.Context, w *work) error {
	sz := w.sizes()
	p := matmulProgram(sz)
	t, err := w.timed(ctx, p, sz.launches, func(i int) []byte {
		if i == 0 {
			return floats(p.in[0])
		}
		one := make([]byte, 0, p.in[1].elements()*2) // the unit matrix, so that numbers stay as they are
		for r := range sz.matrix {
			for c := range sz.matrix {
				v := 0
				if r == c {
					v = 1
				}
				one = appendNumber(one, pjrt.BF16, v)
			}
		}
		return one
	})
	if err != nil {
		return err
	}
	n := float64(sz.matrix)
	f := Figure{Name: "matmul bfloat16, a device", Value: 2 * n * n * n * float64(sz.products) / t.Seconds() / 1e12, Unit: "TFLOP/s"}
	w.against(f, func(of tpu.Generation) float64 { return of.PeakFLOPS / 1e12 })
	return nil
}

// slow is the part of a published value below which a figure is a finding.
const slow = 0.5

// against records a figure, with a finding where it is far below a device's part of a chip's published
// value.
func (w *work) against(f Figure, published func(tpu.Generation) float64) {
	if a, known, _ := w.session.accelerator(); known {
		g := a.Generation()
		f.Of = published(g) / float64(g.DevicesPerChip)
	}
	if f = w.figure(f); f.Of > 0 && f.Value < slow*f.Of {
		w.finding("slow: %s", f)
	}
}

// compareHosts adds a finding to each outcome of a part whose figure is below half of the median of
// the hosts.
func compareHosts(all []Outcome) {
	for i := range all[0].Figures {
		name := all[0].Figures[i].Name
		var values []float64
		for _, o := range all {
			if i >= len(o.Figures) || o.Figures[i].Name != name {
				return // a host was cut: the parts differ
			}
			values = append(values, o.Figures[i].Value)
		}
		middle := slices.Sorted(slices.Values(values))[len(values)/2]
		for h, v := range values {
			if strings.HasSuffix(all[h].Figures[i].Unit, "/s") && v < slow*middle {
				all[h].Findings = append(all[h].Findings, fmt.Sprintf("slow: %s, and the median of the hosts is %.4g", all[h].Figures[i], middle))
				if all[h].Status == Passed {
					all[h].Status = Found
				}
			}
		}
	}
}
