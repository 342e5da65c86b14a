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

// workloadSizes contains the sizes of the measured tensors in bytes, and the dimension of the matrices.
type workloadSizes struct {
	donated, transfer, memory int
	links                     []int
	matrix, products          int
	launches                  int
}

// workloadSizesFor returns the sizes for a platform. The sizes for CPU devices are small, because
// their performance is not of interest.
func workloadSizesFor(platform string) workloadSizes {
	if platform == "cpu" {
		return workloadSizes{donated: 1 << 20, transfer: 1 << 20, memory: 1 << 20, links: []int{4 << 10, 256 << 10},
			matrix: 64, products: 2, launches: 5}
	}
	return workloadSizes{donated: 64 << 20, transfer: 64 << 20, memory: 1 << 29, links: []int{4 << 10, 64 << 10, 1 << 20,
		16 << 20, 128 << 20}, matrix: 8192, products: 8, launches: 10}
}

func (w *partRun) dataSizes() workloadSizes { return workloadSizesFor(w.system().Platform()) }

// memoryProgram returns a program that reads a tensor from memory and writes it back once.
func memoryProgram(sz workloadSizes) rawProgram {
	t := tensorType{pjrt.F32, []int{sz.memory / 4}}
	return rawProgram{name: "memory", inputs: []tensorType{t}, outputs: []tensorType{t}, aliased: true,
		body: fmt.Sprintf("    %%c = stablehlo.constant dense<1.0> : %[1]s\n    %%r0 = stablehlo.add %%x0, %%c : %[1]s\n", t)}
}

// linkProgram returns a program that computes an all-reduce. If the argument is equal on all
// devices, the result equals the argument, so the program can run repeatedly on its own result.
func linkProgram(n, bytes int) rawProgram {
	t := tensorType{pjrt.F32, []int{bytes / 4}}
	return rawProgram{name: fmt.Sprintf("all-reduce of %d bytes", bytes), inputs: []tensorType{t},
		outputs: []tensorType{t}, aliased: true,
		body: collectiveText("all_reduce_max", 0, t, t, [][]int{sequence(n)})}
}

// matmulProgram returns a program that multiplies a chain of matrices.
func matmulProgram(sz workloadSizes) rawProgram {
	t := tensorType{pjrt.BF16, []int{sz.matrix, sz.matrix}}
	p := rawProgram{name: "matmul", inputs: []tensorType{t, t}, outputs: []tensorType{t}, aliased: true}
	from := "%x0"
	for i := range sz.products {
		to := fmt.Sprintf("%%p%d", i)
		if i == sz.products-1 {
			to = "%r0"
		}
		p.body += fmt.Sprintf(
			"    %s = stablehlo.dot_general %s, %%x1, contracting_dims = [1] x [0] : (%[3]s, %[3]s) -> %[3]s\n", to, from, t)
		from = to
	}
	return p
}

// bestLaunchTime runs three rounds of launches without waiting between launches. It returns the average
// time per launch in the fastest round. The program must update its first argument in place.
func (w *partRun) bestLaunchTime(ctx context.Context, p rawProgram, launches int,
	value func(argument int) []byte) (best time.Duration, err error) {
	w.setActivity("%s", p.name)
	l, err := w.session.compile(ctx, p)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.loaded.Close()) }()
	data := map[int][]byte{}
	args, err := l.copyArguments(ctx, w.session, func(_, i int) []byte {
		if data[i] == nil {
			data[i] = value(i)
		}
		return data[i]
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeBuffers(args)) }()
	run := func(times int) error {
		for range times {
			results, err := l.launch(ctx, args)
			if err != nil {
				return err
			}
			for d := range results {
				args[d][0] = results[d][0] // the previous argument was donated
			}
		}
		return waitReady(ctx, args)
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

func encodeOnes(t tensorType) []byte {
	one := encodeNumbers(t.dtype, 1)
	return slices.Repeat(one, t.numElements())
}

// measureTransfers measures the bandwidth of copies between the host and all its devices at the
// same time, in both directions.
func measureTransfers(ctx context.Context, w *partRun) error {
	sz := w.dataSizes()
	host := pjrt.AlignedBytes(sz.transfer)
	for i := range host {
		host[i] = byte(i * 7)
	}
	back := make([]byte, len(host))
	rt := w.system().Runtime()
	var here []*pjrt.Device
	for _, d := range rt.Devices() {
		if rt.Addressable(d.ID()) {
			here = append(here, d)
		}
	}
	up, down := 0.0, 0.0
	for range 3 {
		var buffers [][]*pjrt.Buffer
		w.setActivity("host to device")
		began := time.Now()
		for _, d := range here {
			b, err := rt.BufferFromHost(ctx, host, pjrt.U8, []int{len(host)}, d)
			if err != nil {
				return errors.Join(err, closeBuffers(buffers))
			}
			buffers = append(buffers, []*pjrt.Buffer{b})
		}
		err := waitReady(ctx, buffers)
		up = max(up, float64(len(here)*len(host))/time.Since(began).Seconds())
		w.setActivity("device to host")
		began = time.Now()
		for i := 0; err == nil && i < len(buffers); i++ {
			clear(back[:16])
			if err = buffers[i][0].ToHost(ctx, back); err == nil && i == len(buffers)-1 {
				down = max(down, float64(len(here)*len(host))/time.Since(began).Seconds())
			}
			if err == nil {
				w.compareBytes(fmt.Sprintf("what comes back from device %d", here[i].ID()), pjrt.U8, back, host)
			}
		}
		if err := errors.Join(err, closeBuffers(buffers)); err != nil {
			return err
		}
	}
	w.addMeasurement(Measurement{Name: "host to device, all of this host", Value: up / 1e9, Unit: "GB/s"})
	w.addMeasurement(Measurement{Name: "device to host, one after another", Value: down / 1e9, Unit: "GB/s"})
	return nil
}

// measureMemoryBandwidth measures the bandwidth of the device memory.
func measureMemoryBandwidth(ctx context.Context, w *partRun) error {
	sz := w.dataSizes()
	p := memoryProgram(sz)
	t, err := w.bestLaunchTime(ctx, p, sz.launches, func(int) []byte { return encodeOnes(p.inputs[0]) })
	if err != nil {
		return err
	}
	f := Measurement{Name: "memory, read and written", Value: 2 * float64(sz.memory) / t.Seconds() / 1e9, Unit: "GB/s"}
	w.addAndCompare(f, func(of tpu.Generation) float64 { return of.HBMBandwidth / 1e9 })
	return nil
}

// measureLinks measures the bandwidth of all-reduces over all n devices. The bandwidth is 2(n-1)/n times
// the bytes per device, divided by the time, which is the traffic of a link if the links form a ring.
func measureLinks(ctx context.Context, w *partRun) error {
	n := w.numDevices()
	if n == 1 {
		w.addFact("links", "there is one device")
		return nil
	}
	for _, bytes := range w.dataSizes().links {
		p := linkProgram(n, bytes)
		t, err := w.bestLaunchTime(ctx, p, w.dataSizes().launches, func(int) []byte { return encodeOnes(p.inputs[0]) })
		if err != nil {
			return err
		}
		w.addMeasurement(Measurement{Name: fmt.Sprintf("all-reduce of %d KiB, time", bytes>>10), Value: t.Seconds() * 1e6,
			Unit: "us"})
		w.addMeasurement(Measurement{Name: fmt.Sprintf("all-reduce of %d KiB, bus", bytes>>10),
			Value: 2 * float64(n-1) / float64(n) * float64(bytes) / t.Seconds() / 1e9, Unit: "GB/s"})
	}
	return nil
}

// measureMatmul measures the FLOP/s of products of bfloat16 matrices on each device.
func measureMatmul(ctx context.Context, w *partRun) error {
	sz := w.dataSizes()
	p := matmulProgram(sz)
	t, err := w.bestLaunchTime(ctx, p, sz.launches, func(i int) []byte {
		if i == 0 {
			return encodeOnes(p.inputs[0])
		}
		one := make([]byte, 0, p.inputs[1].numElements()*2) // the identity matrix leaves the values unchanged
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
	f := Measurement{Name: "matmul bfloat16, a device", Value: 2 * n * n * n * float64(sz.products) / t.Seconds() / 1e12,
		Unit: "TFLOP/s"}
	w.addAndCompare(f, func(of tpu.Generation) float64 { return of.PeakFLOPS / 1e12 })
	return nil
}

// slowFraction is the fraction of the expected value below which a measurement becomes a finding.
const slowFraction = 0.5

// addAndCompare records a measurement. It also records a finding if the measurement is much lower
// than the manufacturer's value.
func (w *partRun) addAndCompare(f Measurement, published func(tpu.Generation) float64) {
	if a, known, _ := w.session.acceleratorType(); known {
		g := a.Generation()
		f.Published = published(g) / float64(g.DevicesPerChip)
	}
	if f = w.addMeasurement(f); f.Published > 0 && f.Value < slowFraction*f.Published {
		w.addFinding("slow: %s", f)
	}
}

// compareHosts adds a finding for each measurement that is less than half the median of all hosts.
func compareHosts(all []Outcome) {
	for i := range all[0].Measurements {
		name := all[0].Measurements[i].Name
		var values []float64
		for _, o := range all {
			if i >= len(o.Measurements) || o.Measurements[i].Name != name {
				return // a canceled host has fewer measurements
			}
			values = append(values, o.Measurements[i].Value)
		}
		middle := slices.Sorted(slices.Values(values))[len(values)/2]
		for h, v := range values {
			if strings.HasSuffix(all[h].Measurements[i].Unit, "/s") && v < slowFraction*middle {
				all[h].Findings = append(all[h].Findings, fmt.Sprintf("slow: %s, and the median of the hosts is %.4g",
					all[h].Measurements[i], middle))
				if all[h].Status == Passed {
					all[h].Status = PassedWithFindings
				}
			}
		}
	}
}
