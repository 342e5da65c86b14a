// Package gomlx registers the backend "tpustrategy" with GoMLX, so that an unchanged program runs on
// all devices of a machine or of a slice:
//
//	import _ "github.com/tpustrategy/tpustrategy/gomlx"
//
//	GOMLX_BACKEND=tpustrategy ./any-gomlx-program                       # the TPU, or the CPU
//	GOMLX_BACKEND=tpustrategy:devices=8,logical=2,rules=megatron,explain=1 ./any-gomlx-program
//	GOMLX_BACKEND=tpustrategy:topology=v5e-16 ./any-gomlx-program       # no TPU: stops with the report
//
// [github.com/tpustrategy/tpustrategy/lowering/global.NewFromConfig] lists the options.
//
// See package [github.com/tpustrategy/tpustrategy/lowering/global] for what the backend does, and
// for one that is made in Go.
package gomlx
