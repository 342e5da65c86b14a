package clusterresolver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// getenv returns a replacement for os.Getenv.
func getenv(vars map[string]string) clusterresolver.Getenv {
	return func(name string) string { return vars[name] }
}

// A program passes os.Getenv and, to look up a TPU by name, an API client. In this example the
// chain runs in a pod of Google Kubernetes Engine.
func ExampleDefault() {
	chain := clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: getenv(map[string]string{
		"TPU_WORKER_HOSTNAMES": "job-0.svc,job-1.svc,job-2.svc,job-3.svc",
		"TPU_WORKER_ID":        "1",
		"TPU_ACCELERATOR_TYPE": "v5litepod-16",
	})})
	cluster, attempts, err := chain.ResolveAttempts(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range attempts {
		fmt.Println(a)
	}
	master, _ := cluster.Master()
	fmt.Println(cluster.Task, master, cluster.NumAccelerators, "devices")
	// Output:
	// tf_config: not detected: TF_CONFIG is not set
	// gke: matched
	// /job:worker/task:1 grpc://job-1.svc:8470 4 devices
}

func ExampleTFConfig() {
	r := clusterresolver.TFConfig{Getenv: getenv(map[string]string{"TF_CONFIG": `{
		"cluster": {"worker": ["localhost:12345", "localhost:23456"], "ps": ["localhost:34567"]},
		"task": {"type": "worker", "index": 0}}`})}
	c, err := r.Resolve(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Task, "chief:", c.IsChief())
	for task, address := range c.Spec.All() {
		fmt.Println(task, address)
	}
	// Output:
	// /job:worker/task:0 chief: true
	// /job:ps/task:0 localhost:34567
	// /job:worker/task:0 localhost:12345
	// /job:worker/task:1 localhost:23456
}

// A malformed variable is an error; the chain does not continue with another source.
func ExampleParseError() {
	r := clusterresolver.Chain{Resolvers: []clusterresolver.Resolver{
		clusterresolver.TFConfig{Getenv: getenv(
			map[string]string{"TF_CONFIG": `{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}`})},
		clusterresolver.Simple{},
	}}
	_, err := r.Resolve(context.Background())
	var pe *clusterresolver.ParseError
	if errors.As(err, &pe) {
		fmt.Println(pe)
	}
	// Output:
	// clusterresolver: TF_CONFIG.cluster: duplicate key: got "worker"; remove one of them
}

func ExampleCloudTPU() {
	c, err := clusterresolver.CloudTPU{TPU: "grpc://10.1.2.3:8470,grpc://10.1.2.4"}.Resolve(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Spec)
	// Output:
	// {"worker":["10.1.2.3:8470","10.1.2.4:8470"]}
}

func ExampleUnion() {
	job := func(name, address string) clusterresolver.Resolver {
		spec, _ := clusterresolver.NewClusterSpec(map[string][]string{name: {address}})
		return clusterresolver.Simple{Cluster: clusterresolver.Cluster{Spec: spec}}
	}
	c, err := clusterresolver.Union{Resolvers: []clusterresolver.Resolver{job("worker", "a:1"), job("worker", "b:1"),
		job("ps", "c:1")}}.Resolve(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Spec)
	// Output:
	// {"ps":["c:1"],"worker":["a:1","b:1"]}
}

// The slice was preempted and created again, but the shell still has the old variables.
func ExampleCheck() {
	env, _ := clusterresolver.ReadEnvironment(getenv(map[string]string{
		"MEGASCALE_COORDINATOR_ADDRESS": "10.8.0.1", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "0",
	}))
	told, _ := clusterresolver.ParseTPUEnv(
		"MEGASCALE_COORDINATOR_ADDRESS: '10.9.0.1'\nMEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '0'\n")
	for _, f := range clusterresolver.Check(env, clusterresolver.Metadata{TPUEnv: told}) {
		fmt.Println(f.Severity, f.Code, f.Subject, f.Got, f.Want)
	}
	// Output:
	// error megascale-stale MEGASCALE_COORDINATOR_ADDRESS 10.8.0.1 10.9.0.1
}

// answers is the metadata server of a host that is being preempted.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	key := strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")
	if r.URL.Query().Get("wait_for_change") == "true" { // no further changes
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{
		StatusCode: 200, Request: r, Body: io.NopCloser(strings.NewReader(a[key])),
		Header: http.Header{"Metadata-Flavor": {"Google"}, "Etag": {"1"}},
	}, nil
}

func ExampleMetadataClient_Watch() {
	server := answers{"instance/preempted": "TRUE", "instance/maintenance-event": "NONE"}
	client := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Transport: server})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for event := range client.Watch(ctx) {
		fmt.Println(event.Kind) // save a checkpoint now
		cancel()
	}
	// Output:
	// preempted
}
