# `make help` lists the targets. Targets that run for ten minutes or more are in long.mk.

GO          ?= go
FUZZTIME    ?= 20s
TOOL         = $(GO) tool -modfile=$(CURDIR)/internal/tools/go.mod
DIGITS_MESH  = -replicas 4 -logical 2

# Modules in subfolders: the client of the Cloud TPU API, exporters of metrics, and object stores.
NESTED = cluster_resolver/tpuapi observe storage/blobstore

# With REQUIRE, a test without its plugin fails instead of being skipped.
REQUIRE = TPUSTRATEGY_REQUIRE_PLUGIN=1 TF_CPP_MIN_LOG_LEVEL=2

# Linking without debug information halves the time of the linker; lint runs go vet. One more package
# than there are cores runs at a time, because some tests wait for processes that they stopped.
TEST = $(GO) test -vet=off -ldflags=-w -p $(shell echo $$(($$(nproc) + 1)))

# PURE packages build and pass without cgo. PUREBUILT packages build without cgo, but their tests need a plugin.
PURE = $(addprefix ./,sharding/... tpu logical/... lowering lowering/ir lowering/ragged cluster_resolver/... \
       input/... lm/text lm/weights internal/imports internal/nest internal/pins internal/protoint internal/safetensors \
       internal/files internal/hostfacts internal/uplot report/events report/curve report/xspace \
       strategy/train/schedule fit/goodput fit/watchdog internal/activity)
PUREBUILT = ./lowering/manual ./lowering/spmd

# The longest packages are named first so that they do not start last.
LONGEST    = ./strategy ./strategy/train ./internal/test/corpus ./lowering/loop ./gomlx
LONGESTAOT = ./internal/test/transformer ./cmd/tpustrategy

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Without optimization of the Go code, the first build takes 64 s instead of 85 s on two cores.
QUICKBUILD = all=-N -l
.PHONY: run gpt
run: ## train the digits example on 8 CPU devices (ARGS: flags of the program)
	@GO="$(GO)" GCFLAGS="$(QUICKBUILD)" internal/tools/run.sh ./examples/digits $(DIGITS_MESH) $(ARGS)

gpt: ## train a language model on Go's own sources, on 8 CPU devices, in 3 minutes
	@GO="$(GO)" internal/tools/run.sh ./examples/gpt $(DIGITS_MESH) -generate 'func main() {' $(ARGS)

SLICE ?= cpu:8
.PHONY: onebinary
onebinary: plugin ## build a program that contains its compiled step (SLICE: cpu:8, or a slice such as v5e:2x4)
	$(if $(filter cpu:%,$(SLICE)),,internal/pins/install.sh tpu >/dev/null)
	$(GO) run ./examples/onebinary -topology '$(SLICE)' -save 'examples/onebinary/steps/$(subst :,-,$(SLICE)).step'
	$(GO) build -trimpath -ldflags='-s -w' -o build/onebinary ./examples/onebinary

.PHONY: test pure race asan debug
test: plugins pure ## run all tests with the CPU plugin and the TPU compiler
	$(REQUIRE) $(TEST) -timeout 20m $(LONGEST) $(filter-out $(shell $(GO) list $(PURE)),$(shell $(GO) list ./...))
	for module in $(NESTED); do (cd $$module && $(REQUIRE) $(TEST) ./...) || exit; done

pure:
	CGO_ENABLED=0 $(GO) vet $(PUREBUILT)
	CGO_ENABLED=0 $(TEST) $(PURE)

# GoMLX's Go backend, the reference of some tests, converts integers to pointers. -race enables checkptr, which rejects this.
race: plugins ## run all tests with the race detector
	$(REQUIRE) $(GO) test -race -gcflags=github.com/gomlx/compute/...=-d=checkptr=0 -timeout 40m ./...

asan: plugins ## test the cgo binding with the address sanitizer
	$(REQUIRE) GODEBUG=cgocheck=1 ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0 $(GO) test -asan -timeout 20m ./pjrt/...

debug: plugins ## test the cgo binding with cgocheck2 and continuous garbage collection
	$(REQUIRE) GOGC=1 GOEXPERIMENT=cgocheck2 $(GO) test -timeout 20m ./pjrt/...

.PHONY: test-aot test-gpu-aot python test-python
test-aot: plugin plugin-tpu ## compile for TPU slices with the TPU compiler (SKIP: a regular expression of tests)
	$(REQUIRE) TPUSTRATEGY_AOT=1 $(TEST) -timeout 30m -run '^TestAOTLarge' -skip '$(SKIP)' $(LONGESTAOT) \
	  $$(git grep -l 'func TestAOTLarge' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's#^#./#')

test-gpu-aot: plugin-cuda ## compile for GPUs with the CUDA plugin (downloads 500 MB)
	$(REQUIRE) TPUSTRATEGY_GPU_AOT=1 $(TEST) -timeout 30m -run '^TestGPU' \
	  $$(git grep -l 'func TestGPU' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's#^#./#')

python:
	@for list in requirements requirements-tensorboard requirements-xprof requirements-transformers; do internal/tools/python.sh $$list.txt >/dev/null || exit; done

OFFICIAL = TPUSTRATEGY_PYTHON_TESTS=1 $(TEST) -run
test-python: ## read the files that the module writes with the official Python packages
	PYTHONPATH=$$(internal/tools/python.sh) $(OFFICIAL) Official ./internal/safetensors ./strategy/checkpoint ./lm/text
	PYTHONPATH=$$(internal/tools/python.sh requirements-tensorboard.txt) $(OFFICIAL) Official ./report/events
	PYTHONPATH=$$(internal/tools/python.sh requirements-xprof.txt) $(OFFICIAL) Official ./report/xspace
	PYTHONPATH=$$(internal/tools/python.sh requirements-transformers.txt) $(OFFICIAL) TheOfficialPackageMakes ./lm/pretrained

.PHONY: bench lint deadcode api fuzz goldens
bench: plugin ## run the benchmarks; print one JSON object per line
	@TF_CPP_MIN_LOG_LEVEL=2 $(GO) run ./internal/test/bench $(ARGS)

# misspell reads "strat", a variable of examples, as a misspelled "start", and prints warnings about quotes in comments.
lint: ## run gofmt, go vet, staticcheck, the spelling check, the import rules and the size limits
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	@git ls-files '*.md' | xargs $(TOOL) misspell -error -locale US -i strat
	@git ls-files '*.go' ':!*/testdata/*' | xargs $(TOOL) misspell -source go -error -locale US -i strat 2>/dev/null
	for module in . $(NESTED) internal/test/gomlxexamples; do \
	  (cd $$module && $(GO) vet ./... && $(TOOL) staticcheck ./...) || exit; done
	CGO_ENABLED=0 $(GO) test ./internal/imports

deadcode: ## list functions that neither a command nor a test reaches
	$(TOOL) deadcode -test ./...

BASE ?= HEAD
api: ## list the changes of the exported API since the commit BASE
	@TOOL="$(TOOL)" GO="$(GO)" internal/tools/api.sh $(BASE)

fuzz: ## run each fuzz target for FUZZTIME
	internal/tools/fuzz.sh $(FUZZTIME)

# libtpu describes slices once per process, so the goldens of tpu/system and cmd/tpustrategy are written in a separate run.
goldens: plugins ## write the files and texts that tests compare with
	$(REQUIRE) $(GO) test -count=1 -run 'Golden|Scripts' ./tpu/system ./cmd/tpustrategy -update
	$(REQUIRE) $(GO) test -count=1 ./sharding ./report ./internal/test/docs ./internal/imports ./cluster_resolver ./internal/launch \
	  ./input/digits ./examples/notebook -update
	$(REQUIRE) $(GO) test -count=1 -run TestStoredLosses ./internal/accept -update
	PYTHONPATH=$$(internal/tools/python.sh) TPUSTRATEGY_PYTHON_TESTS=1 $(GO) test -count=1 -run TestFamiliesAsRecorded ./lm/text -update

# libtpu is published for x86-64 only; install.sh exits with 2 elsewhere.
.PHONY: plugin plugin-tpu plugin-cuda plugins
plugin: ## install the pinned CPU plugin
	@internal/pins/install.sh cpu >/dev/null

plugin-tpu: ## install the pinned libtpu for ahead-of-time compilation
	@internal/pins/install.sh tpu >/dev/null

plugin-cuda:
	@internal/pins/install.sh cuda >/dev/null

plugins: plugin
	@internal/pins/install.sh tpu >/dev/null || [ $$? -eq 2 ]

include long.mk
