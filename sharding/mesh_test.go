package sharding_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func mesh(t testing.TB, axes ...sharding.Axis) sharding.Mesh {
	t.Helper()
	m, err := sharding.NewMesh(axes...)
	require.NoError(t, err)
	return m
}

func mesh2x4(t testing.TB) sharding.Mesh {
	return mesh(t, sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 4})
}

func TestMeshNumbersDevicesRowMajor(t *testing.T) {
	m := mesh2x4(t)
	assert.Equal(t, 8, m.Size())
	assert.Equal(t, []int{1, 2}, m.Coordinates(6))
	assert.Nil(t, m.Coordinates(8))
	assert.Nil(t, m.Coordinates(-1))
	assert.Equal(t, "replica=2,logical=4", m.String())
	assert.Equal(t, `sdy.mesh @mesh = <["replica"=2, "logical"=4]>`, m.ShardyText("mesh"))
	size, ok := m.AxisSize("logical")
	assert.True(t, ok)
	assert.Equal(t, 4, size)
	_, ok = m.AxisSize("model")
	assert.False(t, ok)
	assert.Equal(t, []string{"replica", "logical", "zz"}, m.SortAxes([]string{"logical", "zz", "replica", "logical"}))
}

func TestLastCoordinateVariesFastest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		m := randomMesh(t, rng)
		for device := range m.Size() {
			got := 0
			for i, at := range m.Coordinates(device) {
				require.Less(t, at, m.Axes()[i].Size)
				got = got*m.Axes()[i].Size + at
			}
			require.Equal(t, device, got)
		}
	}
}

func TestNewMeshRejectsInvalidAxes(t *testing.T) {
	for name, axes := range map[string][]sharding.Axis{
		"empty name":     {{Name: "", Size: 2}},
		"zero size":      {{Name: "a", Size: 0}},
		"negative size":  {{Name: "a", Size: -4}},
		"repeated name":  {{Name: "a", Size: 2}, {Name: "a", Size: 2}},
		"quote in name":  {{Name: `a"`, Size: 2}},
		"space in name":  {{Name: "a b", Size: 2}},
		"overflow":       {{Name: "a", Size: 1 << 20}, {Name: "b", Size: 1 << 20}},
		"large overflow": {{Name: "a", Size: 1 << 62}, {Name: "b", Size: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sharding.NewMesh(axes...)
			assert.ErrorContains(t, err, "sharding: mesh axis")
		})
	}
}

func TestMeshIsImmutable(t *testing.T) {
	axes := []sharding.Axis{{Name: "a", Size: 2}}
	m := mesh(t, axes...)
	axes[0].Size = 9
	m.Axes()[0].Name = "changed"
	assert.Equal(t, "a=2", m.String())
	assert.True(t, m.Equal(mesh(t, sharding.Axis{Name: "a", Size: 2})))
	assert.False(t, m.Equal(mesh2x4(t)))
}

func TestZeroMeshHasOneDevice(t *testing.T) {
	var m sharding.Mesh
	assert.Equal(t, 1, m.Size())
	assert.Equal(t, []int{}, m.Coordinates(0))
}

func randomMesh(t testing.TB, rng *rand.Rand) sharding.Mesh {
	names := []string{"a", "b", "c", "d"}
	axes := make([]sharding.Axis, rng.IntN(4)+1)
	for i := range axes {
		axes[i] = sharding.Axis{Name: names[i], Size: rng.IntN(4) + 1}
	}
	return mesh(t, axes...)
}

// randomSpec returns a valid spec and a shape that it divides.
func randomSpec(t testing.TB, rng *rand.Rand, m sharding.Mesh) (sharding.Spec, []int) {
	t.Helper()
	dims := make([]sharding.Dim, rng.IntN(4))
	names := m.AxisNames()
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var replicated []string
	for _, name := range names {
		switch k := rng.IntN(len(dims) + 2); {
		case k < len(dims):
			dims[k].Axes = append(dims[k].Axes, name)
		case k == len(dims):
			replicated = append(replicated, name)
		}
	}
	shape := make([]int, len(dims))
	for i := range dims {
		dims[i].Open = rng.IntN(3) == 0
		shape[i] = rng.IntN(4)
		for _, name := range dims[i].Axes {
			size, _ := m.AxisSize(name)
			shape[i] *= size
		}
	}
	return sharding.NewSpec(dims...).WithReplicated(replicated...), shape
}
