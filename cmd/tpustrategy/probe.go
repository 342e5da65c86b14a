package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// probeRequest is a request to describe a plugin. If Client is true, the description includes the
// devices, which must be opened for it.
type probeRequest struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Client bool   `json:"client"`
}

// probeAnswer is the description of a plugin that a child process returns.
type probeAnswer struct {
	// Plugin contains the file name of the plugin and its API version.
	Plugin      string            `json:"plugin"`
	Attributes  map[string]string `json:"attributes"`
	Extensions  []string          `json:"extensions"`
	Platform    string            `json:"platform,omitempty"`
	Devices     int               `json:"devices"`
	DeviceKinds []string          `json:"device_kinds,omitempty"`
	// ClientError is the error message if the devices could not be opened.
	ClientError string `json:"client_error,omitempty"`
	// AheadOfTime is true if the plugin can compile for slices that are not present, such as Topology.
	AheadOfTime     bool   `json:"ahead_of_time"`
	Topology        string `json:"topology,omitempty"`
	TopologyDevices int    `json:"topology_devices,omitempty"`
}

// probeTopology is the slice that tests whether a TPU plugin can compile ahead of time.
const probeTopology = "v5e:2x4"

func probePlugin(ctx context.Context, r probeRequest) (*probeAnswer, error) {
	var slice *system.Slice
	if r.Kind == "tpu" {
		// This is first because it sets environment variables that libtpu needs without a TPU.
		var err error
		if slice, err = system.Describe(ctx, probeTopology, system.DescribeOptions{Plugin: r.Path}); err != nil {
			return nil, err
		}
		defer slice.Close()
	}
	plugin, err := pjrt.Open(r.Path)
	if err != nil {
		return nil, err
	}
	answer := &probeAnswer{Plugin: plugin.String(), Attributes: map[string]string{}, Extensions: plugin.Extensions()}
	for name, value := range plugin.Attributes() {
		answer.Attributes[name] = fmt.Sprint(value)
	}
	if r.Client {
		if err := probeClient(ctx, plugin, answer); err != nil {
			answer.ClientError = err.Error()
		}
	}
	if slice != nil {
		facts := slice.Info()
		answer.AheadOfTime, answer.Topology, answer.TopologyDevices, answer.Platform = true, facts.Name, facts.Devices,
			facts.Plugin
	}
	return answer, nil
}

func probeClient(ctx context.Context, plugin *pjrt.Plugin, answer *probeAnswer) error {
	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{})
	if err != nil {
		return err
	}
	answer.Platform, answer.Devices = client.PlatformVersion(), len(client.Devices())
	for _, device := range client.Devices() {
		if !slices.Contains(answer.DeviceKinds, device.Kind()) {
			answer.DeviceKinds = append(answer.DeviceKinds, device.Kind())
		}
	}
	return client.Close()
}
