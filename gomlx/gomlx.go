// Package gomlx registers the backend "tpustrategy" with GoMLX, so that an unchanged program runs on
// all devices of a machine or of a slice:
//
//	import _ "github.com/tpustrategy/tpustrategy/gomlx"
//
//	GOMLX_BACKEND=tpustrategy:devices=8,logical=2 ./any-gomlx-program
//
// See package [github.com/tpustrategy/tpustrategy/lowering/global] for what the backend does, and
// for one that is made in Go.
package gomlx

import "github.com/tpustrategy/tpustrategy/lowering/global"

// Name is the name under which the backend is registered.
const Name = "tpustrategy"

func init() { global.Register(Name) }
