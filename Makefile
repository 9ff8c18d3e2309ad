# The project's entry points. `make help` lists them. MPI=openmpi|mpich|system selects the MPI for each target.
MPI    ?= openmpi
PYTHON ?= python3
JOBS   ?= $(shell nproc)
PRESET := $(if $(filter openmpi,$(MPI)),release,$(MPI))
VENV   := .venv/bin
PYTEST := $(VENV)/python -m pytest -q -p no:cacheprovider
# The build that scripts/demo.sh and the benchmarks use.
export WEFT_PRESET := $(PRESET)
export PYTHON JOBS

.PHONY: help env build test demo bench lint format tidy clean distclean conformance test-mpich test-system test-asan \
	test-tsan test-package test-spatial test-programs test-soak test-kills test-experiments test-report test-aggregation \
	test-fuzz test-dpdk test-hosts test-integrations

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

env:  ## install all dependencies without prompts and build the product (seconds if nothing changed)
	@scripts/env.sh $(MPI)
	@scripts/build.sh $(PRESET) product

demo: env  ## train a network on 1 rank, on 4 ranks in image tiles, and with its layers on 2 ranks
	@scripts/demo.sh

test: env  ## run every test; the last line is "N passed, N failed"
	@scripts/test.sh all $(MPI)

build:  ## build everything, with tests, examples and benchmarks
	@scripts/build.sh $(PRESET)

bench: env build  ## run the benchmarks; writes benchmarks/results.jsonl
	@$(VENV)/python benchmarks/run.py

lint:  ## check formatting, types and layering
	@scripts/lint.sh

format:  ## reformat the sources as lint expects them
	@scripts/lint.sh --fix

tidy:  ## run clang-tidy on the changed C++ files, or on FILES="…"
	@scripts/tidy.sh $(FILES)

test-mpich:  ## all tests against MPICH through the MPI-5 standard ABI
	@scripts/test.sh mpich

test-system:  ## all tests against the system's MPI
	@scripts/test.sh system

test-asan:  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/test.sh asan

test-tsan:  ## the C++ tests under ThreadSanitizer
	@scripts/test.sh tsan

test-package:  ## `pip install .` into an empty prefix, then import and run it
	@scripts/test.sh package

test-spatial:  ## 2,000 random layers and torchvision's networks on tiles against one process: 30 minutes
	@scripts/test_spatial.sh

test-programs:  ## 10^4 random communication programs on 2 to 4 ranks against one process: 20 minutes
	@scripts/test_programs.sh

test-soak: env  ## 10^5 collectives, 10^4 communicators and 10^3 networks: no resource grows; a few minutes
	@WEFT_SOAK=1 $(VENV)/mpirun -n 2 $(PYTEST) tests/python/communication/soak_test.py

test-hosts: env  ## the tests of each direction on 2 and 4 simulated hosts with TCP between them: 20 minutes
	@WEFT_HOSTS=1 $(PYTEST) tests/python/hosts

test-kills:  ## kill a training job 50 times at random moments: a few minutes
	@WEFT_KILLS=50 $(PYTEST) tests/python/experiment/killed_test.py

test-experiments: env  ## neon's files on the full data sets in the folder $WEFT_DATA: 30 minutes
	@WEFT_WHOLE_DATA="$${WEFT_DATA:?set it to the folder that holds MNIST and CIFAR10}" $(PYTEST) -s tests/python/experiment/neon_test.py

test-report: env  ## render reports in headless Chromium (installed if missing); writes the pictures in docs/
	@scripts/test_report.sh

test-aggregation:  ## sum 10^8 elements in the simulator: 10 minutes
	@scripts/test_aggregation.sh

test-fuzz:  ## run every fuzz target for five minutes: 30 minutes
	@scripts/test_fuzz.sh

test-dpdk:  ## the DPDK transport on virtual links, in a separate build; installs libdpdk-dev
	@scripts/test_dpdk.sh

test-integrations: env  ## Lightning, Accelerate, transformers, TensorBoard and a notebook on 2 ranks: 5 minutes
	@scripts/test_integrations.sh

conformance: env  ## the test suites of PyTorch, mpi4torch and torchbraid against weft: one hour
	@scripts/conformance.sh

clean:  ## remove the builds
	rm -rf build

distclean: clean  ## remove the builds and everything that `make env` installed
	rm -rf .venv .mpi python/weft/lib
