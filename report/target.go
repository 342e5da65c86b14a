package report

import "github.com/tpustrategy/tpustrategy/tpu/system"

// TargetOf returns the description of a slice as a target.
func TargetOf(facts system.SliceInfo) Target {
	return Target{
		Name: facts.Name, Kind: facts.Kind, Platform: facts.Plugin, Devices: facts.Devices, Chips: facts.Chips, Hosts: facts.Hosts,
		HBMBytes: facts.HBMBytes, PeakFLOPS: facts.PeakFLOPS, HBMBandwidth: facts.HBMBandwidth,
	}
}
