package clusterresolver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func v4Metadata(t *testing.T, extra string) Metadata {
	t.Helper()
	e, err := ParseTPUEnv(tpuEnvV4 + extra)
	require.NoError(t, err)
	hosts, err := ParseEndpoints("u:u:10.0.0.1,u:u:10.0.0.2,u:u:10.0.0.3,u:u:10.0.0.4")
	require.NoError(t, err)
	return Metadata{AcceleratorType: "v4-32", WorkerID: 2, Endpoints: hosts, TPUEnv: e}
}

func readEnv(t *testing.T, pairs ...string) Environment {
	t.Helper()
	e, err := ReadEnvironment(env(pairs...))
	require.NoError(t, err)
	return e
}

type codeSeverity struct {
	Code     FindingCode
	Severity Severity
}

func codes(findings []Finding) []codeSeverity {
	var out []codeSeverity
	for _, f := range findings {
		out = append(out, codeSeverity{f.Code, f.Severity})
	}
	return out
}

func TestCheckFindsContradictions(t *testing.T) {
	const told = "MEGASCALE_COORDINATOR_ADDRESS: '10.9.0.1'\nMEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n"
	mega := func(coordinator, n, id string) []string {
		return []string{"MEGASCALE_COORDINATOR_ADDRESS", coordinator, "MEGASCALE_NUM_SLICES", n, "MEGASCALE_SLICE_ID", id}
	}
	for name, c := range map[string]struct {
		env   []string
		extra string
		want  []codeSeverity
	}{
		"all agrees": {[]string{"TPU_ACCELERATOR_TYPE", "v4-32", "TPU_TOPOLOGY", "2x2x4", "TPU_WORKER_ID", "2",
			"TPU_WORKER_HOSTNAMES", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4", "TPU_PROCESS_BOUNDS", "1,1,4"}, "", nil},
		"nothing set":                   {nil, "", nil},
		"host names cannot be compared": {[]string{"TPU_WORKER_HOSTNAMES", "a,b,c,d"}, "", nil},
		"accelerator type": {[]string{"TPU_ACCELERATOR_TYPE", "v4-16"}, "",
			[]codeSeverity{{FindingAcceleratorType, SeverityError}}},
		"unknown accelerator": {[]string{"TPU_ACCELERATOR_TYPE", "v99-1"}, "",
			[]codeSeverity{{FindingAcceleratorType, SeverityError}, {FindingAcceleratorUnknown, SeverityWarning}}},
		"topology": {[]string{"TPU_TOPOLOGY", "2x2x2"}, "",
			[]codeSeverity{{FindingTopology, SeverityError}}},
		"topology against type": {[]string{"TPU_TOPOLOGY", "2x2x2", "TPU_ACCELERATOR_TYPE", "v4-32"}, "",
			[]codeSeverity{{FindingTopology, SeverityError}, {FindingTopology, SeverityWarning}}},
		"malformed topology": {[]string{"TPU_TOPOLOGY", "2*2"}, "",
			[]codeSeverity{{FindingTopology, SeverityError}, {FindingTopology, SeverityWarning}}},
		"too few hosts": {[]string{"TPU_WORKER_HOSTNAMES", "a,b"}, "",
			[]codeSeverity{{FindingWorkerCount, SeverityError}}},
		"localhost on purpose": {[]string{"TPU_WORKER_HOSTNAMES", "localhost"}, "",
			[]codeSeverity{{FindingWorkerCount, SeverityWarning}}},
		"hosts of an earlier slice": {[]string{"TPU_WORKER_HOSTNAMES", "10.0.0.1,10.0.0.9,10.0.0.3,10.0.0.4"}, "",
			[]codeSeverity{{FindingWorkerHosts, SeverityError}}},
		"worker id of another host": {[]string{"TPU_WORKER_HOSTNAMES", "a,b,c,d", "TPU_WORKER_ID", "1"}, "",
			[]codeSeverity{{FindingWorkerID, SeverityError}}},
		"worker id out of range": {[]string{"TPU_WORKER_HOSTNAMES", "a,b,c,d", "TPU_WORKER_ID", "4"}, "",
			[]codeSeverity{{FindingWorkerID, SeverityError}, {FindingWorkerID, SeverityError}}},
		"one host alone": {[]string{"TPU_PROCESS_BOUNDS", "1,1,1"}, "",
			[]codeSeverity{{FindingWorkerCount, SeverityWarning}}},
		"process bounds": {[]string{"TPU_PROCESS_BOUNDS", "1,1,2"}, "",
			[]codeSeverity{{FindingWorkerCount, SeverityError}}},
		"a part of the hosts": {[]string{"TPU_PROCESS_BOUNDS", "1,1,2", "TPU_WORKER_HOSTNAMES", "a,b",
			"TPU_WORKER_ID", "1"}, "", []codeSeverity{{FindingWorkerCount, SeverityWarning}}},
		"two of the host's chips": {[]string{"TPU_VISIBLE_CHIPS", "0,1", "TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"}, "",
			[]codeSeverity{{FindingVisibleChips, SeverityWarning}}},
		"more than the host's chips": {[]string{"TPU_VISIBLE_CHIPS", "0,1,2,3,4", "TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"},
			"", []codeSeverity{{FindingVisibleChips, SeverityError}}},
		"visible chips": {[]string{"TPU_VISIBLE_CHIPS", "0,1", "TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"}, "",
			[]codeSeverity{{FindingVisibleChips, SeverityError}}},
		"multislice agrees": {mega("10.9.0.1", "2", "1"), told, nil},
		"stale coordinator": {mega("10.8.0.1", "2", "1"), told,
			[]codeSeverity{{FindingMegascaleStale, SeverityError}}},
		"stale slice count and id": {mega("10.9.0.1", "3", "2"), told,
			[]codeSeverity{{FindingMegascaleStale, SeverityError}, {FindingMegascaleStale, SeverityError}}},
		"left over from another job": {mega("10.8.0.1", "2", "1"), "", []codeSeverity{{FindingMegascaleUnconfirmed,
			SeverityWarning}}},
		"slice id beyond the count": {mega("10.8.0.1", "2", "2"), "",
			[]codeSeverity{{FindingMegascaleStale, SeverityError}, {FindingMegascaleUnconfirmed, SeverityWarning}}},
		"half of the multislice is set": {[]string{"MEGASCALE_NUM_SLICES", "2"}, "",
			[]codeSeverity{{FindingMegascaleIncomplete, SeverityError}, {FindingMegascaleUnconfirmed, SeverityWarning}}},
	} {
		t.Run(name, func(t *testing.T) {
			e, md := readEnv(t, c.env...), v4Metadata(t, c.extra)
			got := Check(e, md)
			assert.Equal(t, c.want, codes(got))
			assert.Equal(t, got, Check(e, md), "findings must come in one order")
			for _, f := range got {
				assert.NotEmpty(t, f.Subject)
				assert.NotEmpty(t, f.Fix)
			}
		})
	}
}

func TestCheckFindsContradictionsWithinMetadata(t *testing.T) {
	md := v4Metadata(t, "")
	md.WorkerID = 7
	assert.Equal(t, []codeSeverity{{FindingWorkerID, SeverityError}, {FindingWorkerID, SeverityError}},
		codes(Check(readEnv(t), md)))
	md = v4Metadata(t, "")
	md.Endpoints = md.Endpoints[:3]
	assert.Equal(t, []codeSeverity{{FindingWorkerCount, SeverityWarning}, {FindingWorkerCount, SeverityError}},
		codes(Check(readEnv(t), md)),
		"the type only lets one infer how many there are, the process bounds say it")
	md = v4Metadata(t, "")
	md.Preempted = true
	assert.Equal(t, []codeSeverity{{FindingPreempted, SeverityError}}, codes(Check(readEnv(t), md)))
}

func TestCheckTreatsTopologyFormsAsEqual(t *testing.T) {
	e, err := ParseTPUEnv("TOPOLOGY: '4x4x1'")
	require.NoError(t, err)
	assert.Empty(t, Check(readEnv(t, "TPU_TOPOLOGY", "4x4"), Metadata{TPUEnv: e, WorkerID: -1}))
	assert.Len(t, Check(readEnv(t, "TPU_TOPOLOGY", "4x8"), Metadata{TPUEnv: e, WorkerID: -1}), 1)
}

func TestCheckTreatsTypeAliasesAsEqual(t *testing.T) {
	md := Metadata{AcceleratorType: "v5litepod-4", WorkerID: 0}
	assert.Empty(t, Check(readEnv(t, "TPU_ACCELERATOR_TYPE", "v5e-4"), md))
	md.AcceleratorType = "v7x-8"
	assert.Empty(t, Check(readEnv(t, "TPU_ACCELERATOR_TYPE", "tpu7x-8"), md))
}
