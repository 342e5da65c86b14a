// What GoMLX's examples need is a module of its own: the module above does not require them.
module github.com/tpustrategy/tpustrategy/internal/test/gomlxexamples

go 1.26.5

require (
	github.com/gomlx/compute v0.1.6
	github.com/gomlx/gomlx v0.28.8
	github.com/gomlx/gomlx/examples v0.28.5
	github.com/stretchr/testify v1.12.1
	github.com/tpustrategy/tpustrategy v0.0.0-00010101000000-000000000000
)

require (
	cloud.google.com/go/compute/metadata v0.10.0 // indirect
	github.com/MetalBlueberry/go-plotly v0.7.0 // indirect
	github.com/aymanbagabas/go-osc52/v2 v2.0.1 // indirect
	github.com/charmbracelet/colorprofile v0.4.3 // indirect
	github.com/charmbracelet/lipgloss v1.1.0 // indirect
	github.com/charmbracelet/x/ansi v0.11.7 // indirect
	github.com/charmbracelet/x/cellbuf v0.0.15 // indirect
	github.com/charmbracelet/x/term v0.2.2 // indirect
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/go-gota/gota v0.12.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/gofrs/flock v0.13.0 // indirect
	github.com/gofrs/uuid v4.4.0+incompatible // indirect
	github.com/gomlx/bsplines v0.2.0 // indirect
	github.com/gomlx/compute-onnx v0.1.5 // indirect
	github.com/gomlx/exceptions v0.0.3 // indirect
	github.com/gomlx/go-xla v0.4.5 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/janpfeifer/gonb v0.11.5 // indirect
	github.com/lucasb-eyer/go-colorful v1.4.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.23 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/muesli/termenv v0.16.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/schollz/progressbar/v3 v3.19.1 // indirect
	github.com/xo/terminfo v0.0.0-20220910002029-abceb7e1c41e // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20260824195058-e88cd73687aa // indirect
	golang.org/x/net v0.51.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)

replace github.com/tpustrategy/tpustrategy => ../../..

tool (
	github.com/gomlx/gomlx/examples/adult/demo
	github.com/gomlx/gomlx/examples/cifar/demo
	github.com/gomlx/gomlx/examples/gomlx.github.io/computation-graph
	github.com/gomlx/gomlx/examples/gomlx.github.io/core-concepts/graph
	github.com/gomlx/gomlx/examples/gomlx.github.io/core-concepts/overview
	github.com/gomlx/gomlx/examples/gomlx.github.io/core-concepts/store
	github.com/gomlx/gomlx/examples/gomlx.github.io/core-concepts/tensors
	github.com/gomlx/gomlx/examples/gomlx.github.io/core-concepts/training
	github.com/gomlx/gomlx/examples/gomlx.github.io/debugging/logging
	github.com/gomlx/gomlx/examples/gomlx.github.io/debugging/nanlogger
	github.com/gomlx/gomlx/examples/gomlx.github.io/mnist/first-model
	github.com/gomlx/gomlx/examples/gomlx.github.io/training
	github.com/gomlx/gomlx/examples/imdb/demo
	github.com/gomlx/gomlx/examples/linear
	github.com/gomlx/gomlx/examples/mnist/demo
	github.com/gomlx/gomlx/examples/textgen
)
