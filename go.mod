module github.com/tpustrategy/tpustrategy

go 1.26.5

require (
	cloud.google.com/go/compute/metadata v0.10.0
	github.com/alecthomas/kong v1.17.0
	github.com/gomlx/compute v0.1.6
	github.com/gomlx/go-xla v0.4.5
	github.com/gomlx/gomlx v0.28.8
	github.com/rogpeppe/go-internal v1.16.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
	golang.org/x/text v0.43.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/gomlx/bsplines v0.2.0 // indirect
	github.com/gomlx/exceptions v0.0.3 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/exp v0.0.0-20260824195058-e88cd73687aa // indirect
	golang.org/x/image v0.47.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)
