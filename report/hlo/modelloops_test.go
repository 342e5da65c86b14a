package hlo

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// product2 is a matrix product of 2 x 2 x 2 x 2 operations.
const product2 = "      %d = stablehlo.dot %a, %b : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\n"

func TestModelFLOPsCountEachRoundOfALoop(t *testing.T) {
	pretty := func(compare, body, before string) string {
		return `  func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %n = stablehlo.constant dense<24> : tensor<i32>
` + before + `    %r:2 = stablehlo.while(%i = %c0, %y = %x) : tensor<i32>, tensor<2x2xf32>
    cond {
      %p = stablehlo.compare ` + compare + `, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
` + product2 + body + `      stablehlo.return %next, %d : tensor<i32>, tensor<2x2xf32>
    }
    return %r#1 : tensor<2x2xf32>
  }
`
	}
	one := "      %one = stablehlo.constant dense<1> : tensor<i32>\n      %next = stablehlo.add %i, %one : tensor<i32>\n"
	generic := `  func.func @main(%x: tensor<2x2xf32>) {
      %first = stablehlo.constant dense<0> : tensor<i32>
      %loop:2 = "stablehlo.while"(%first, %x) ({
      ^more(%count: tensor<i32>, %before0: tensor<2x2xf32>):
        %steps = stablehlo.constant dense<7> : tensor<i32>
        %again = stablehlo.compare LT, %count, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %again : tensor<i1>
      }, {
      ^step(%index: tensor<i32>, %carried0: tensor<2x2xf32>):
        %stepped = func.call @step(%carried0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %index, %one : tensor<i32>
        stablehlo.return %next, %stepped : tensor<i32>, tensor<2x2xf32>
      }) : (tensor<i32>, tensor<2x2xf32>) -> (tensor<i32>, tensor<2x2xf32>)
  }
  func.func private @step(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
` + product2 + `    %twice = func.call @half(%d) : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %again = func.call @half(%twice) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  }
  func.func private @half(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
` + product2 + "  }\n"
	for name, c := range map[string]struct {
		text    string
		rounds  float64
		unknown int
	}{
		"a counter":                {pretty("LT, %i, %n", one, ""), 24, 0},
		"a counter from behind":    {pretty("GT, %n, %i", one, ""), 24, 0},
		"one round more":           {pretty("LE, %i, %n", one, ""), 25, 0},
		"by twos":                  {pretty("LT, %i, %n", "      %next = stablehlo.add %c2, %i : tensor<i32>\n", ""), 12, 0},
		"an unknown limit":         {pretty("LT, %i, %m", one, ""), 1, 1},
		"an unknown step":          {pretty("LT, %i, %n", "      %next = stablehlo.add %i, %k : tensor<i32>\n", ""), 1, 1},
		"in a loop and in calls":   {generic, 7 * 3, 0},
		"beside one":               {pretty("LT, %i, %n", one, product2), 25, 0},
		"a function no loop calls": {pretty("LT, %i, %n", one, "") + "  func.func @other() {\n" + product2 + "  }\n", 25, 0},
		"a loop that is cut":       {"stablehlo.while(%i = %c0) : tensor<i32> cond { " + product2, 1, 0},
	} {
		flops, unknown := ModelFLOPs([]byte(c.text))
		assert.Equal(t, 16*c.rounds, flops, name)
		assert.Equal(t, c.unknown, unknown, name)
	}
}
