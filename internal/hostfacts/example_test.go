package hostfacts_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

func ExampleFacts_Findings() {
	facts := hostfacts.Facts{HugePages: "never", AvailableBytes: 300 << 30}
	for _, f := range facts.Findings() {
		fmt.Println(f.Subject, "are", f.Value)
		fmt.Println(f.Fix)
	}
	// Output:
	// transparent huge pages are never
	// sudo sh -c "echo always > /sys/kernel/mm/transparent_hugepage/enabled"
}
