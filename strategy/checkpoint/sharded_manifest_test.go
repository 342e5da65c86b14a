package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// manifests returns the texts of a checkpoint's manifests, without their checksums.
func manifests(t testing.TB) (s *objects, all, part, partPath string) {
	s = &objects{all: map[string]string{}}
	m := managerOf(t, s, ManagerOptions{})
	require.NoError(t, m.Save(context.Background(), 1, numbers(1), SaveOptions{Metrics: map[string]float64{"loss": 1}}))
	require.NoError(t, m.Close())
	text := func(name string) string {
		var of envelope
		require.NoError(t, decodeStrict([]byte(s.all[name]), &of))
		return string(of.Manifest)
	}
	partPath = partName(1, m.runName+"-1", 0)
	return s, text(manifestName(1)), text(partPath), partPath
}

// withManifests replaces a checkpoint's manifests, with valid checksums.
func withManifests(s *objects, all, part, partPath string) {
	sealedPart := sealed([]byte(part))
	var m map[string]any
	if d := json.NewDecoder(strings.NewReader(all)); true {
		d.UseNumber()
		if d.Decode(&m) == nil && m["hosts"] != nil {
			hosts, _ := m["hosts"].([]any)
			for i := range hosts {
				hosts[i] = hostPart{int64(len(sealedPart)), checksum(0).update(sealedPart)}
			}
			if text, err := json.Marshal(m); err == nil {
				all = string(text)
			}
		}
	}
	s.all[manifestName(1)], s.all[partPath] = string(sealed([]byte(all))), string(sealedPart)
}

// The rewritten manifests have valid checksums.
func TestManifestsOfNoTensorsAreCorrupt(t *testing.T) {
	ctx := context.Background()
	s, all, part, partPath := manifests(t)
	open := func() (*Checkpoint, error) { return openStep(ctx, s, 1) }
	withManifests(s, all, part, partPath)
	c, err := open()
	require.NoError(t, err)
	require.NoError(t, c.Verify(ctx))
	require.NoError(t, c.Close())
	region := func(variable int, start, size string, offset, n int) string {
		return fmt.Sprintf(`{"variable":%d,"start":%s,"size":%s,"offset":%d,"bytes":%d,"crc32c":"00000000"}`, variable, start,
			size, offset, n)
	}
	regions := func(of ...string) string {
		i := strings.Index(part, `"regions":`)
		return part[:i] + `"regions":[` + strings.Join(of, ",") + `]}`
	}
	b := region(1, "[]", "[]", 0, 4)
	a := region(0, "[0]", "[3]", 0, 12)
	for name, of := range map[string][2]string{
		"a negative dimension": {strings.Replace(all, `"shape":[3]`, `"shape":[-1]`, 1), part},
		"more bytes than an int64": {strings.Replace(all, `"shape":[3]`, `"shape":[4294967296,4294967296]`, 1),
			regions(b, region(2, "[0,0]", "[2,2]", 0, 32))},
		"more elements than an int64": {strings.Replace(all, `"shape":[3]`, `"shape":[4294967296,4294967296,1]`, 1), part},
		"an overlap and a gap": {all, regions(a, b, region(2, "[0,0]", "[1,2]", 0, 16), region(2, "[0,1]", "[2,1]",
			0, 16))},
		"an overlap of shifted boxes": {all, regions(region(0, "[0]", "[2]", 0, 8), region(0, "[1]", "[1]", 0, 4), b,
			region(2, "[0,0]", "[2,2]", 0, 32))},
		"a gap":                         {all, regions(a, b, region(2, "[0,0]", "[1,2]", 0, 16))},
		"the same twice":                {all, regions(a, a, b, region(2, "[0,0]", "[2,2]", 0, 32))},
		"a part of another host":        {all, strings.Replace(part, `"host":0`, `"host":1`, 1)},
		"a part of another step":        {all, strings.Replace(part, `"step":1`, `"step":2`, 1)},
		"a manifest of another step":    {strings.Replace(all, `"step":1`, `"step":2`, 1), part},
		"a save with a way out":         {strings.Replace(all, `"save":"`, `"save":"../`, 1), part},
		"a save with a control":         {strings.Replace(all, `"save":"`, `"save":"\u0001`, 1), part},
		"variables that are not listed": {all, regions(a, b, region(7, "[0,0]", "[2,2]", 0, 32))},
	} {
		withManifests(s, of[0], of[1], partPath)
		c, err := open()
		if err == nil {
			c.Close()
		}
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	// A pinwheel of boxes, which no split separates, covers the whole variable.
	v := variable{Info: c.variables[2].Info, bytes: 9}
	for _, box := range [][4]int{{0, 0, 1, 2}, {0, 2, 2, 1}, {2, 1, 1, 2}, {1, 0, 2, 1}, {1, 1, 1, 1}} {
		v.regions = append(v.regions, region4(box))
	}
	require.NoError(t, v.checkCoverage())
	v.regions[4] = region4([4]int{0, 1, 1, 1})
	require.Error(t, v.checkCoverage())
}

func region4(b [4]int) region {
	return region{start: b[:2], size: b[2:], bytes: int64(b[2] * b[3])}
}

// Checkpoints with changed manifests and valid checksums are opened. The result is an error, or a
// checkpoint that can be read and removed.
func FuzzShardedManifests(f *testing.F) {
	s, all, part, partPath := manifests(f)
	void, err := encodeManifest(voidManifest{Format: voidFormat, Version: formatVersion, Step: 1, Save: "x-1"})
	require.NoError(f, err)
	var of envelope
	require.NoError(f, decodeStrict(void, &of))
	plain := `{"format":"tpustrategy.checkpoint","version":1,"step":1,"bytes":24,"crc32c":"00000000","header_bytes":10,"header_crc32c":"00000000",` +
		`"variables":[{"path":"/a","tensor":"a","crc32c":"00000000","trainable":true,"synchronization":"ON_WRITE","aggregation":"NONE"}]}`
	f.Add(all, part, string(of.Manifest))
	f.Add(plain, part, string(of.Manifest))
	f.Add(strings.Replace(all, `[3]`, `[-1]`, 1), part, "{}")
	f.Add(strings.Replace(all, `[3]`, `[4294967296,4294967296]`, 1), part, "null")
	f.Add(all, strings.Replace(part, `"start":[0]`, `"start":[1]`, 1), part)
	f.Add(all, strings.Replace(part, `"offset":`, `"offset":9223372036854775807,"offset":`, 1), all)
	original := s.all
	f.Fuzz(func(t *testing.T, all, part, void string) {
		ctx := context.Background()
		s := &objects{all: map[string]string{}}
		for name, data := range original {
			s.all[name] = data
		}
		withManifests(s, all, part, partPath)
		s.all[voidName(1, "x-1")] = string(sealed([]byte(void)))
		s.all[partName(1, "x-1", 0)] = "left"
		if c, err := openStep(ctx, s, 1); err == nil {
			total := int64(0)
			for _, v := range c.Variables() {
				total += int64(v.Shape.ByteSize())
			}
			if total < 1<<20 && c.Verify(ctx) == nil {
				for _, v := range c.Variables() {
					if _, err := c.Tensor(ctx, v.Path); err != nil {
						t.Errorf("%s verifies and cannot be read: %v", v.Path, err)
					}
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		before := s.all[manifestName(1)]
		m, err := NewManager(ctx, s, ManagerOptions{Retention: Retention{Last: 2, Best: 1, Metric: "loss"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.removeObsolete(ctx, 1, m.opts.Retention, ""); err != nil {
			t.Fatal(err)
		}
		if s.all[manifestName(1)] != before || s.all[shardsOf(partPath)] == "" {
			t.Error("a checkpoint that no rule drops was removed")
		}
		var v voidManifest
		disowned := decodeManifest(sealed([]byte(void)), voidFormat, &v) == nil
		if _, _, err := readStepManifest(ctx, s, 1); s.all[partName(1, "x-1", 0)] == "" && !disowned && err != nil {
			t.Error("nothing verified disowned the save that was removed")
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func shardsOf(part string) string { return strings.TrimSuffix(part, "json") + "safetensors" }
