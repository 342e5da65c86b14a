package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// sliceDiagnosis describes the TPU slice that this machine belongs to, if any.
type sliceDiagnosis struct {
	// Cluster is the detected slice. It is nil if no slice was detected.
	Cluster *clusterresolver.Cluster `json:"cluster,omitempty"`
	// Looked describes why each other resolver did not apply.
	Looked []string `json:"looked"`
	// Error is the error message if the slice could not be resolved.
	Error string `json:"error,omitempty"`
}

// resolveTimeout limits the queries to the metadata server, which normally responds within milliseconds.
const resolveTimeout = 20 * time.Second

// diagnoseMachine adds a description of the machine and its problems to the diagnosis.
func (a *app) diagnoseMachine(d *diagnosis) {
	d.Machine = hostfacts.ReadFacts("")
	if len(d.TPUDevices) > 0 { // the findings concern the TPU runtime
		d.Findings = d.Machine.Findings()
	}
	for _, f := range d.Findings {
		d.Actions = append(d.Actions, fmt.Sprintf("%s is %s (%s): run `%s`", f.Subject, f.Value, f.Consequence, f.Fix))
	}
	for i := range d.Plugins {
		p := &d.Plugins[i]
		if p.Path == "" {
			continue
		}
		needs, err := hostfacts.ReadRequirements(p.Path)
		if err != nil {
			continue // the plugin's own diagnosis contains the error
		}
		p.CLibrary = needs.CLibrary
		if have := d.Machine.CLibrary; have != "" && hostfacts.IsOlderVersion(have, needs.CLibrary) {
			d.Actions = append(d.Actions,
				fmt.Sprintf("the %s plugin needs C library %s and this machine has %s: take a newer image, or an older %s",
					p.Kind, needs.CLibrary, have, filepath.Base(p.Path)))
		}
	}
}

// diagnoseSlice detects the TPU slice of this machine and adds it to the diagnosis. It does nothing
// on a machine without a TPU and without the environment variables of a job.
func (a *app) diagnoseSlice(ctx context.Context, d *diagnosis) {
	told := false
	for _, name := range []string{"TF_CONFIG", "TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"} {
		told = told || a.getenv(name) != ""
	}
	if len(d.TPUDevices) == 0 && !told {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	md := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{})
	options := clusterresolver.DefaultOptions{Getenv: a.getenv}
	if len(d.TPUDevices) > 0 {
		options.Metadata = md
	} else { // do not wait for a metadata server
		options.Getenv = func(name string) string {
			if name == "TPU_SKIP_MDS_QUERY" {
				return "1"
			}
			return a.getenv(name)
		}
	}
	cluster, attempts, err := clusterresolver.Default(options).ResolveAttempts(ctx)
	s := &sliceDiagnosis{Looked: []string{}}
	d.Slice = s
	for _, attempt := range attempts {
		s.Looked = append(s.Looked, attempt.String())
	}
	var check *clusterresolver.CheckError
	switch {
	case err == nil:
		s.Cluster = &cluster
		for _, f := range cluster.Findings {
			d.Actions = append(d.Actions, fmt.Sprintf("%s is %s, expected %s: %s", f.Subject, f.Got, f.Want, f.Fix))
		}
	case errors.As(err, &check):
		s.Error = "variables and metadata contradict each other"
		for _, f := range check.Findings {
			d.Actions = append(d.Actions, fmt.Sprintf("%s is %s, expected %s: %s", f.Subject, f.Got, f.Want, f.Fix))
		}
	case errors.Is(err, clusterresolver.ErrNotDetected):
		s.Error = "nothing here says which hosts the slice has"
		d.Actions = append(d.Actions, "on a machine that is a slice by itself, set "+
			`TF_CONFIG='{"cluster":{"worker":["localhost:8470"]},"task":{"type":"worker","index":0}}'`)
	default:
		s.Error = errkind.Format("resolvers", err.Error(), nil, "")
		d.Actions = append(d.Actions, "correct what the resolvers stumble over: "+err.Error())
	}
}
