package plan_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/aot/plan"
)

func Example() {
	p, err := plan.Parse([]byte(`{"version": 1, "slice": "v5e:4x4", "replicas": 4, "axes": "logical=4",
		"rules": [{"variable": "/up/weights$", "split": "-,logical"}, {"variable": "", "state": "parameters"}], "settings": {"remat": "full"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p)
	fmt.Println(p.Rules[0])
	// Output:
	// v5e:4x4: 4 x logical=4, shard-state=parameters, remat=full
	// "/up/weights$" to -,logical
}

func ExampleSpace() {
	space := plan.Space{Slices: []plan.Slice{{Name: "v5e:1x1", Devices: 1}, {Name: "v5e:2x2", Devices: 4}},
		Logical: []int{1, 4}, Settings: map[string][]string{"remat": {"full"}}}
	for _, p := range space.Plans() {
		fmt.Println(p)
	}
	// Output:
	// v5e:1x1: 1 x logical=1, remat=full
	// v5e:2x2: 4 x logical=1, remat=full
	// v5e:2x2: 4 x logical=1, shard-state=optimizer, remat=full
	// v5e:2x2: 4 x logical=1, shard-state=gradients, remat=full
	// v5e:2x2: 4 x logical=1, shard-state=parameters, remat=full
	// v5e:2x2: 1 x logical=4, remat=full
}
