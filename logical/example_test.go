package logical_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// The rule splits the columns of the weights of all hidden layers. It does not depend on the number
// of devices.
func ExampleMatch() {
	rule := logical.Match(`/hidden/.*weights$`, logical.SplitOverAxes("", logical.LogicalAxis))
	annotation, _ := logical.Rules{rule}.AnnotationFor(mesh(), "/hidden/dense/weights", []int{4, 8})
	fmt.Println(annotation)
	// Output: -,logical
}

func mesh() sharding.Mesh {
	m, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 4}, sharding.Axis{Name: "logical", Size: 2})
	if err != nil {
		panic(err)
	}
	return m
}

// The rule shards the optimizer state of all variables over the replicas (ZeRO-1).
func ExampleMatchState() {
	text, err := logical.Rules{logical.MatchState("", logical.ShardOptimizer)}.MarshalJSON()
	fmt.Println(string(text), err)
	// Output: {"rules":[{"variable":"","state":"optimizer"}]} <nil>
}

func ExampleParseRules() {
	rules, err := logical.ParseRules([]byte(`{"rules": [{"variable": "/output/.*weights$", "split": "logical,-"}]}`))
	if err != nil {
		panic(err)
	}
	annotation, _ := rules.AnnotationFor(mesh(), "/output/dense/weights", []int{8, 4})
	fmt.Println(annotation)
	// Output: logical,-
}

func ExampleParseAnnotation() {
	annotation, err := logical.ParseAnnotation("-,logical")
	fmt.Println(annotation.Equal(logical.SplitOverAxes("", "logical")), err)
	// Output: true <nil>
}

// The rows are not split, and the columns are split into four shards.
func ExampleSplitInto() {
	fmt.Println(logical.SplitInto(1, 4))
	// Output: 1,4
}

func ExampleAssignTo() {
	fmt.Println(logical.AssignTo(3))
	// Output: assign=3
}

func ExampleBuiltinRules() {
	rules, err := logical.BuiltinRules("megatron", mesh())
	annotation, _ := rules.AnnotationFor(mesh(), "/layer_0/ffn/up/dense/weights", []int{8, 32})
	fmt.Println(len(rules) > 0, annotation, err)
	// Output: true -,logical <nil>
}

func ExampleOwnerOfState() {
	variable := func(path string) bool { return path == "/hidden/weights" }
	fmt.Println(logical.OwnerOfState("/AdamOptimizer/hidden/weights_1st_moment", variable))
	// Output: /hidden/weights
}

// A split into 2 x 2 shards and a split into 4 shards have two common factors of size 2.
func ExampleFactorAxes() {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "logical", Size: 4})
	if err != nil {
		panic(err)
	}
	factors, err := logical.FactorAxes(mesh, logical.SplitInto(2, 2), logical.SplitInto(4, 1))
	fmt.Println(factors.Names(), err)
	// Output: [logical.0 logical.1] <nil>
}

// The first rule replicates a variable that a later rule would split.
func ExampleReplicated() {
	rules := logical.Rules{logical.Match("/norm", logical.Replicated()),
		logical.Match("", logical.SplitOverAxes(logical.LogicalAxis))}
	for _, path := range []string{"/norm/gain", "/biases"} {
		annotation, _ := rules.AnnotationFor(mesh(), path, []int{8})
		fmt.Println(annotation)
	}
	// Output:
	// replicate
	// logical
}
