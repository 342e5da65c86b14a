package clusterresolver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestServiceErrorsAreTruncated(t *testing.T) {
	long := strings.Repeat("word ", 100_000)
	for _, err := range []error{
		&APIError{Op: "nodes.get", Name: long, Code: 500, Message: long}, &APIError{Op: "nodes.get",
			Err: fmt.Errorf("%s", long)},
		&NotReadyError{Name: long, State: long, Health: long, Detail: long}, noJobError(long, []string{long}),
		&MetadataError{Key: "instance/zone", Err: fmt.Errorf("%s", long)}, notDetected("cloud_tpu", long, nil),
		parseError("TF_CONFIG", long, "not JSON", ""),
	} {
		assert.Less(t, len(err.Error()), longest, "%T", err)
	}
}
