package tpu

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTopologyProtoIsInverseOfMarshal(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 200 {
		topology := randomTopology(t, rng)
		wire := topology.MarshalProto()
		back, err := ParseTopologyProto(wire)
		require.NoError(t, err)
		require.Equal(t, topology.DeviceCoordinates(), back.DeviceCoordinates())
		require.Equal(t, topology.MeshShape(), back.MeshShape())
		require.Equal(t, wire, back.MarshalProto())
	}
}

func FuzzParseTopologyProto(f *testing.F) {
	for _, seed := range []string{
		"0a04010101021001180222080000000000000001", "0a040001010110011801220400000000",
		"0a040101010110ffffffffffffffffff011801220400000000", "0a0402020201", "2a00",
		"0801080108010801100118012000200020002000",
	} {
		wire, err := hex.DecodeString(seed)
		require.NoError(f, err)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		topology, err := ParseTopologyProto(wire)
		if err != nil {
			return
		}
		back, err := ParseTopologyProto(topology.MarshalProto())
		require.NoError(t, err)
		require.True(t, topology.Equal(back))
	})
}
