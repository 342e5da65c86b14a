package gomlx

import (
	"github.com/tpustrategy/tpustrategy/lowering/global"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// Name is the name under which the backend is registered.
const Name = "tpustrategy"

// The process that compiles ahead of time (topology=) is the program again, and ends here.
func init() { global.Register(Name, global.Options{Worker: worker.Main()}) }
