# Targets a user needs: run, test. The others are for work on the module itself.
#
#   make run        train the digits example on 8 CPU devices
#   make gpt        train a language model on Go's own sources, on 8 CPU devices
#   make test       everything, on the real CPU plugin and libtpu's compiler
#   make race       the same under the race detector
#   make asan       the cgo binding under the address sanitizer
#   make debug      the cgo binding under cgocheck2, with the garbage collector at work all the time
#   make bench      benchmarks, one JSON object a line
#   make onebinary  a program with its compiled step inside, in build/ (SLICE=cpu:8, or a slice such as v5e:2x4)
#   make lint       gofmt, go vet, staticcheck, the law of imports and the sizes
#   make deadcode   functions that neither a command nor a test reaches
#   make fuzz       each fuzz target for FUZZTIME
#   make goldens    write anew the files and texts that tests compare with
#   make plugin     install the pinned CPU plugin (done by run and test)
#   make plugin-tpu install the pinned libtpu, for ahead-of-time compilation
#   make test-aot   compile for TPU slices with libtpu's compiler (SKIP=Llama leaves out the largest models)
#   make test-gpu-aot  compile for GPUs that are not here, with the pinned CUDA plugin (half a gigabyte)
#   make test-upstream-patches  our patches for GoMLX, compute and go-xla: each test fails, and passes with its patch
#   make test-gpt   the long tests of the language model: killed and resumed, every option, every mesh
#   make test-kills kill, stop and cut off hosts of training runs, 500 times (KILLS=500, 15 minutes)
#   make test-lives random pipelines of data, interrupted and gone on with, 4000 times (a minute)
#   make test-split-forms 500 random programs of split tensors, compared with one device (10 minutes; SPLITFORMS=500)
#   make forms      train a decoder in every form and compare with one device (10 minutes)
#   make corpus     compile many real programs at their real size, with both compilers (an hour)
#   make test-gomlx run the tests that GoMLX ships, on its backends and on ours (half an hour), and write docs/gomlx-suites.md
#   make test-gomlx-examples run GoMLX's examples, unchanged, on one device and on eight (15 minutes), and write docs/gomlx-examples.md
#   make test-saves 200 saves by several hosts to object storage, with faults in its HTTP requests (5 minutes),
#                   and 2000 random damages of saved checkpoints, each followed by saves (3 minutes; DAMAGES=2000)
#   make test-newcomer a fresh clone, the README's commands, an own module with three programs, every subcommand,
#                   without Go's build cache (15 minutes), and the seconds of each
#   make test-replay 100 000 steps, each taken twice, without a false alarm (REPLAYS=100000, 10 minutes)
#   make test-plan  232 plans of a small step, probed and compiled whole: the order of the one is that of the other (an hour)
#   make test-watchdog each of 14 faults on 8 processes, and 100 000 steps without a false alarm (15 minutes)
#   make test-python read our files with the official Python packages

GO       ?= go
FUZZTIME ?= 20s
STATICCHECK = $(GO) tool -modfile=internal/tools/go.mod staticcheck

# A test that needs a plugin and does not find it fails.
REQUIRE = TPUSTRATEGY_REQUIRE_PLUGIN=1 TF_CPP_MIN_LOG_LEVEL=2

# The long tests compile as users do; the others ask for plain code, which is compiled in a fifth of the time.
OPTIMIZED = $(REQUIRE) TPUSTRATEGY_OPTIMIZED=1

# The tests of CI are linked without debug information, which is half of the linker's time, and lint
# vets them. One package more than there are cores: some wait for processes that they stopped.
TEST = $(GO) test -vet=off -ldflags=-w -p $(shell echo $$(($$(nproc) + 1)))

# Packages that must build and pass without cgo: the values and the lowering. Those whose tests also
# have a plugin are built without cgo, and tested with it.
PURE      = ./strategy/watchdog ./sharding/... ./tpu ./logical/... ./lowering ./lowering/ir ./lowering/ragged ./cluster_resolver/... \
            ./input/... ./weights ./internal/imports ./internal/nest ./internal/pins ./internal/protoint ./internal/safetensors ./internal/files ./internal/hostfacts ./internal/uplot ./report/events ./report/curve ./report/xspace ./strategy/train/schedule ./internal/activity ./strategy/goodput
PUREBUILT = ./manual ./lowering/spmd

# The longest packages are named first, so that no core waits for them at the end.
LONGEST = ./strategy ./strategy/train ./internal/test/corpus ./loop ./gomlx
LONGESTAOT = ./internal/test/transformer ./cmd/tpustrategy

# The client of the Cloud TPU API, what tells other systems of a run, and object stores are modules of their own.
TPUAPI = cluster_resolver/tpuapi
OBSERVE = observe
BLOBSTORE = storage/blobstore

.PHONY: run gpt test-gpt test-launch test-optimizers test pure race asan debug bench lint goldens fuzz plugin plugin-tpu plugins plugin-cuda test-aot test-gpu-aot forms corpus python test-python test-upstream-patches

run:
	@GO="$(GO)" internal/tools/run.sh ./examples/digits -replicas 4 -logical 2 $(ARGS)

# The tiny preset as 4 replicas of 2 logical devices: three minutes on two cores.
gpt:
	@GO="$(GO)" internal/tools/run.sh ./examples/gpt -replicas 4 -logical 2 -generate 'func main() {' $(ARGS)

# A program with its compiled step inside, for SLICE: cpu:8, or a slice such as v5e:2x4. Steps for other
# slices that are in examples/onebinary/steps go inside, too.
SLICE ?= cpu:8
.PHONY: onebinary
onebinary: plugin
	$(if $(filter cpu:%,$(SLICE)),,internal/pins/install.sh tpu >/dev/null)
	$(GO) run ./examples/onebinary -topology '$(SLICE)' -save 'examples/onebinary/steps/$(subst :,-,$(SLICE)).step'
	$(GO) build -trimpath -ldflags='-s -w' -o build/onebinary ./examples/onebinary

test: plugins pure
	$(REQUIRE) $(TEST) -timeout 20m $(LONGEST) $(filter-out $(shell $(GO) list $(PURE)),$(shell $(GO) list ./...))
	cd $(TPUAPI) && $(TEST) ./...
	cd $(OBSERVE) && $(REQUIRE) $(TEST) ./...
	cd $(BLOBSTORE) && $(REQUIRE) $(TEST) ./...

pure:
	CGO_ENABLED=0 $(GO) vet $(PUREBUILT)
	CGO_ENABLED=0 $(TEST) $(PURE)

# GoMLX's Go backend, which tests compare with, makes pointers from integers in its
# matrix product: checkptr, which -race brings, would end the process there.
race: plugins
	$(REQUIRE) $(GO) test -race -gcflags=github.com/gomlx/compute/...=-d=checkptr=0 -timeout 40m ./...

asan: plugins
	$(REQUIRE) GODEBUG=cgocheck=1 ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0 $(GO) test -asan -timeout 20m ./pjrt/...

debug: plugins
	$(REQUIRE) GOGC=1 GOEXPERIMENT=cgocheck2 $(GO) test -timeout 20m ./pjrt/...

bench: plugin
	@TF_CPP_MIN_LOG_LEVEL=2 $(GO) run ./internal/test/bench $(ARGS)

lint:
	@out=$$(gofmt -l . ); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	cd $(TPUAPI) && $(GO) vet ./... && $(GO) tool -modfile=../../internal/tools/go.mod staticcheck ./...
	cd $(OBSERVE) && $(GO) vet ./... && $(GO) tool -modfile=../internal/tools/go.mod staticcheck ./...
	cd $(BLOBSTORE) && $(GO) vet ./... && $(GO) tool -modfile=../../internal/tools/go.mod staticcheck ./...
	cd internal/test/gomlxexamples && $(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	CGO_ENABLED=0 $(GO) test ./internal/imports

.PHONY: deadcode
deadcode:
	$(GO) tool -modfile=internal/tools/go.mod deadcode -test ./...

# The packages whose tests take -update. libtpu describes slices once a process, so its goldens have a run of their own.
goldens: plugins
	$(REQUIRE) $(GO) test -count=1 -run 'Golden|Scripts' ./tpu/system ./cmd/tpustrategy -update
	$(REQUIRE) $(GO) test -count=1 ./sharding ./report ./docs ./internal/imports ./cluster_resolver ./internal/launch ./testdata/digits ./examples/notebook -update
	$(REQUIRE) $(GO) test -count=1 -run TestStoredLosses ./internal/accept -update
	packages=$$(internal/tools/python.sh) && PYTHONPATH=$$packages TPUSTRATEGY_PYTHON_TESTS=1 $(GO) test -count=1 -run TestFamiliesAsRecorded ./input/text -update

# Each script of tpustrategy launch, interrupted and made to fail in each of its calls.
test-launch:
	TPUSTRATEGY_LAUNCH_ALL=1 $(GO) test -count=1 -run WhereverAScriptIsStopped ./internal/launch

# Trains with each optimizer of TestEveryOptimizerTrainsAsOnOneDevice on every mesh and stage (tests run a third).
test-optimizers: plugin
	$(REQUIRE) TPUSTRATEGY_ALL_OPTIMIZERS=1 $(GO) test -count=1 -timeout 30m -run TestEveryOptimizerTrainsAsOnOneDevice ./strategy/train

fuzz:
	internal/tools/fuzz.sh $(FUZZTIME)

plugin:
	@internal/pins/install.sh cpu >/dev/null

plugin-tpu:
	@internal/pins/install.sh tpu >/dev/null

plugin-cuda:
	@internal/pins/install.sh cuda >/dev/null

# Both, libtpu only where it is published: its compiler checks what we emit.
plugins: plugin
	@internal/pins/install.sh tpu >/dev/null || [ $$? -eq 2 ]

# What compiles for minutes is called TestAOTLarge..., and is not part of test.
test-aot: plugin plugin-tpu
	$(REQUIRE) TPUSTRATEGY_AOT=1 $(TEST) -timeout 30m -run '^TestAOTLarge' -skip '$(SKIP)' $(LONGESTAOT) $$(git grep -l 'func TestAOTLarge' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's#^#./#')

test-gpu-aot: plugin-cuda
	$(REQUIRE) TPUSTRATEGY_GPU_AOT=1 $(TEST) -timeout 30m -run '^TestGPU' $$(git grep -l 'func TestGPU' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's#^#./#')

# Every mesh of 8 devices, with each sharding of state, with and without what is computed again, in a
# loop and unrolled, must give the losses of one device. The tests sample them.
forms: plugin
	$(OPTIMIZED) TPUSTRATEGY_FORMS=all $(GO) test -count=1 -timeout 60m -v -run 'EachForm|FormsOfInputs' ./internal/test/transformer ./internal/test/conformance

# Killed and resumed, each option against the plain run, and all forms of the model.
test-gpt: plugin
	$(OPTIMIZED) TPUSTRATEGY_GPT=1 TPUSTRATEGY_FORMS=all $(GO) test -count=1 -timeout 30m -v ./examples/gpt/...

# Hosts are processes, and what is done to them is done for real. `make test` does it a few times.
KILLS ?= 500
REPLAYS ?= 100000
.PHONY: test-replay
test-replay: plugin
	$(OPTIMIZED) TPUSTRATEGY_REPLAY_STEPS=$(REPLAYS) $(GO) test -count=1 -timeout 2h -v -run NoAlarm ./strategy/replay

.PHONY: test-kills
test-kills: plugin
	$(OPTIMIZED) TPUSTRATEGY_KILLS=$(KILLS) $(GO) test -count=1 -timeout 2h -v ./internal/test/kills

# Random programs of windowed and whole-axis operations on split tensors, compared with one device.
SPLITFORMS ?= 500
.PHONY: test-split-forms
test-split-forms: plugin
	$(REQUIRE) TPUSTRATEGY_SPLIT_FORMS=$(SPLITFORMS) $(GO) test -count=1 -timeout 60m -run RandomProgramsOfSplit ./lowering/spmd ./gomlx

# Each element once, whatever the numbers of processes and replicas. `make test` does it 120 times.
LIVES ?= 4000
.PHONY: test-lives
test-lives:
	TPUSTRATEGY_LIVES=$(LIVES) $(GO) test -count=1 -run 'EveryExampleOnceOverAnyLives' ./input

# A table of what came of it is written to CORPUS, and the results to CORPUS.json: a run goes on where
# the last one stopped. TPUSTRATEGY_CORPUS_LIMIT=4m is how long one compilation may take.
CORPUS ?= $(CURDIR)/corpus.md
corpus: plugin plugin-tpu
	$(OPTIMIZED) TPUSTRATEGY_CORPUS=$(CORPUS) $(GO) test -count=1 -timeout 0 -run 'Corpus|GivesTheNumbers' ./internal/test/corpus

# What came of each run is kept: ONLY='8x1/core/graph', a regular expression, runs no others again.
ONLY ?=
.PHONY: test-gomlx
test-gomlx: plugin
	$(REQUIRE) TPUSTRATEGY_GOMLX_SUITES=$(CURDIR)/docs/gomlx-suites.md TPUSTRATEGY_GOMLX_ONLY='$(value ONLY)' $(GO) test -count=1 -timeout 3h -v -run TestSuites ./internal/test/gomlxsuite
	$(OPTIMIZED) TPUSTRATEGY_GOMLX_SUITES=1 $(GO) test -count=1 -timeout 30m -run TestCompliance ./gomlx

# Saves fail and runs end; what was confirmed is there afterwards, and nothing else.
SAVES   ?= 200
DAMAGES ?= 2000
.PHONY: test-saves
test-saves: plugin
	TPUSTRATEGY_DAMAGES=$(DAMAGES) $(GO) test -count=1 -timeout 60m -v -run WhatVerifiedGoesOn ./strategy/checkpoint
	cd $(BLOBSTORE) && $(REQUIRE) TPUSTRATEGY_SAVES=$(SAVES) $(GO) test -count=1 -timeout 60m -v -run "UnderFaults|ACommand|ThroughABucket" ./internal/test/savetest

# The table is written where every program passed; -run of single ones in the folder writes none.
.PHONY: test-gomlx-examples
test-gomlx-examples: plugin
	cd internal/test/gomlxexamples && $(REQUIRE) TPUSTRATEGY_GOMLX_EXAMPLES=$(CURDIR)/docs/gomlx-examples.md $(GO) test -count=1 -timeout 90m -v .

# What is said goes to WORK/newcomer.log; CACHE=1 takes the build cache.
.PHONY: test-newcomer
test-newcomer:
	internal/test/newcomer/run.sh

# What the compiler answered is kept in PLANS: a run goes on where the last one stopped.
PLANS ?= $(CURDIR)/build/plans
.PHONY: test-plan
test-plan: plugin-tpu
	$(REQUIRE) TPUSTRATEGY_AOT=1 TPUSTRATEGY_PLANS=232 TPUSTRATEGY_PLANS_KEPT=$(PLANS) $(GO) test -count=1 -timeout 6h -v -run 'Plans|IsPlanned|StepsArePredicted' ./internal/ahead ./gomlx ./cmd/tpustrategy

.PHONY: test-watchdog
test-watchdog:
	TPUSTRATEGY_WATCHDOG=1 $(GO) test -count=1 -timeout 40m -v -run 'Fault|Alarm' ./strategy/watchdog

# The official Python packages that tests read our files with.
python:
	@for list in requirements requirements-tensorboard requirements-xprof requirements-transformers; do internal/tools/python.sh $$list.txt >/dev/null || exit; done

test-python:
	packages=$$(internal/tools/python.sh) && PYTHONPATH=$$packages TPUSTRATEGY_PYTHON_TESTS=1 $(TEST) -run Official ./internal/safetensors ./strategy/checkpoint ./input/text
	packages=$$(internal/tools/python.sh requirements-tensorboard.txt) && PYTHONPATH=$$packages TPUSTRATEGY_PYTHON_TESTS=1 $(TEST) -run Official ./report/events
	packages=$$(internal/tools/python.sh requirements-xprof.txt) && PYTHONPATH=$$packages TPUSTRATEGY_PYTHON_TESTS=1 $(TEST) -run Official ./report/xspace
	packages=$$(internal/tools/python.sh requirements-transformers.txt) && PYTHONPATH=$$packages TPUSTRATEGY_PYTHON_TESTS=1 $(TEST) -run TheOfficialPackageMakes ./strategy/pretrained

# Copies of the modules in a temporary folder; nothing is downloaded. A quarter of an hour on two cores.
test-upstream-patches: plugin
	TPUSTRATEGY_UPSTREAM=$$(internal/pins/install.sh cpu | tail -1) $(GO) test -count=1 -v -timeout 60m -run EachPatch ./docs/upstream
