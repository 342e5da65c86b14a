# Tests that run for ten minutes or more. `make test` runs a sample of most of them.

# OPTIMIZED tests compile with the compiler's default options. Other tests turn optimizations off, which
# makes compilation five times as fast.
OPTIMIZED = $(REQUIRE) TPUSTRATEGY_OPTIMIZED=1
ONCE = $(GO) test -count=1

.PHONY: forms test-gpt
forms: plugin ## train a decoder on each mesh, in each form, and compare it with one device (10 minutes)
	$(OPTIMIZED) TPUSTRATEGY_FORMS=all $(ONCE) -timeout 60m -v -run 'EachForm|FormsOfInputs' ./internal/test/transformer ./internal/test/conformance

test-gpt: plugin ## test the language model: kill and resume, every option, every mesh
	$(OPTIMIZED) TPUSTRATEGY_GPT=1 TPUSTRATEGY_FORMS=all $(ONCE) -timeout 30m -v ./examples/gpt/...

KILLS ?= 500
.PHONY: test-kills
test-kills: plugin ## kill, stop and disconnect hosts of training runs (KILLS=500; 15 minutes)
	$(OPTIMIZED) TPUSTRATEGY_KILLS=$(KILLS) $(ONCE) -timeout 2h -v ./internal/test/kills

.PHONY: test-pages
test-pages: plugin ## run the training commands of the tutorial with all of their steps (2 minutes)
	$(OPTIMIZED) TPUSTRATEGY_FULL_PAGES=1 $(ONCE) -timeout 30m -v -run 'PagesCommandsRun/tutorial' ./docs

REPLAYS ?= 100000
.PHONY: test-replay
test-replay: plugin ## run each step twice and compare the results (REPLAYS=100000; 10 minutes)
	$(OPTIMIZED) TPUSTRATEGY_REPLAY_STEPS=$(REPLAYS) $(ONCE) -timeout 2h -v -run NoAlarm ./fit/replay

SPLITFORMS ?= 500
.PHONY: test-split-forms test-optimizers
test-split-forms: plugin ## compare random programs of split tensors with one device (SPLITFORMS=500; 10 minutes)
	$(REQUIRE) TPUSTRATEGY_SPLIT_FORMS=$(SPLITFORMS) $(ONCE) -timeout 60m -run RandomProgramsOfSplit ./lowering/spmd ./gomlx

test-optimizers: plugin ## train with each optimizer on every mesh and stage of sharded state
	$(REQUIRE) TPUSTRATEGY_ALL_OPTIMIZERS=1 $(ONCE) -timeout 30m -run TestEveryOptimizerTrainsAsOnOneDevice ./strategy/train

LIVES ?= 4000
.PHONY: test-lives
test-lives: ## interrupt and resume random input pipelines (LIVES=4000; 1 minute)
	TPUSTRATEGY_LIVES=$(LIVES) $(ONCE) -run 'EveryExampleOnceOverAnyLives' ./input

SAVES   ?= 200
DAMAGES ?= 2000
.PHONY: test-saves
test-saves: plugin ## save to object storage with HTTP faults (SAVES=200) and damage checkpoints (DAMAGES=2000; 8 minutes)
	TPUSTRATEGY_DAMAGES=$(DAMAGES) $(ONCE) -timeout 60m -v -run WhatVerifiedGoesOn ./strategy/checkpoint
	cd storage/blobstore && $(REQUIRE) TPUSTRATEGY_SAVES=$(SAVES) $(ONCE) -timeout 60m -v -run "UnderFaults|ACommand|ThroughABucket" ./internal/test/savetest

.PHONY: test-watchdog test-launch
test-watchdog: ## cause 14 faults on 8 processes, and run 100,000 steps without a false alarm (15 minutes)
	TPUSTRATEGY_WATCHDOG=1 $(ONCE) -timeout 40m -v -run 'Fault|Alarm' ./fit/watchdog

test-launch: ## interrupt each launch script at each call, and make each call fail
	TPUSTRATEGY_LAUNCH_ALL=1 $(ONCE) -run WhereverAScriptIsStopped ./internal/launch

# Results are stored in CORPUS.json, so that an interrupted run continues. TPUSTRATEGY_CORPUS_LIMIT=4m
# limits the time of one compilation.
CORPUS ?= $(CURDIR)/corpus.md
.PHONY: corpus
corpus: plugin plugin-tpu ## compile many models at their real size with both compilers; write a table to CORPUS (1 hour)
	$(OPTIMIZED) TPUSTRATEGY_CORPUS=$(CORPUS) $(ONCE) -timeout 0 -run 'Corpus|GivesTheNumbers' ./internal/test/corpus

# Answers of the compiler are stored in PLANS, so that an interrupted run continues.
PLANS ?= $(CURDIR)/build/plans
.PHONY: test-plan
test-plan: plugin-tpu ## compare the estimated and the compiled order of 232 plans (1 hour)
	$(REQUIRE) TPUSTRATEGY_AOT=1 TPUSTRATEGY_PLANS=232 TPUSTRATEGY_PLANS_KEPT=$(PLANS) $(ONCE) -timeout 6h -v -run 'Plans|IsPlanned|StepsArePredicted' ./internal/ahead ./gomlx ./cmd/tpustrategy

# Results are stored, so that a second run repeats only the runs that match ONLY, such as '8x1/core/graph'.
ONLY ?=
.PHONY: test-gomlx test-gomlx-examples
test-gomlx: plugin ## run GoMLX's tests on its backends and on this module's; write docs/gomlx-suites.md (30 minutes)
	$(REQUIRE) TPUSTRATEGY_GOMLX_SUITES=$(CURDIR)/docs/gomlx-suites.md TPUSTRATEGY_GOMLX_ONLY='$(value ONLY)' $(ONCE) -timeout 3h -v -run TestSuites ./internal/test/gomlxsuite
	$(OPTIMIZED) TPUSTRATEGY_GOMLX_SUITES=1 $(ONCE) -timeout 30m -run TestCompliance ./gomlx

test-gomlx-examples: plugin ## run GoMLX's examples on one device and on eight; write docs/gomlx-examples.md (15 minutes)
	cd internal/test/gomlxexamples && $(REQUIRE) TPUSTRATEGY_GOMLX_EXAMPLES=$(CURDIR)/docs/gomlx-examples.md $(ONCE) -timeout 90m -v .

.PHONY: test-tokenizers
test-tokenizers: ## compare token ids of 10,000 lines with the official Python package (2 minutes)
	PYTHONPATH=$$(internal/tools/python.sh) TPUSTRATEGY_PYTHON_TESTS=1 TPUSTRATEGY_ALL_LINES=1 $(ONCE) -run TestOfficialFamilies ./lm/text

.PHONY: test-newcomer test-upstream-patches
test-newcomer: ## follow the README in a fresh clone without Go's build cache, and time each step (15 minutes)
	internal/test/newcomer/run.sh

test-upstream-patches: plugin ## test our patches for GoMLX, compute and go-xla in copies of these modules (15 minutes)
	TPUSTRATEGY_UPSTREAM=$$(internal/pins/install.sh cpu | tail -1) $(ONCE) -v -timeout 60m -run EachPatch ./internal/test/upstream
