# Two commands for a newcomer: `make demo` and `make test`. Each installs what is missing, builds and
# does its job; the steps are the files of scripts/.
.PHONY: demo test build debug asan sanitize bench bench-ablate bench-plan fuzz mutants soak soak-gpu gpu-bundle format lint clean

demo:
	@scripts/install.sh build
	@scripts/build.sh release retrograd fusion-explain
	@scripts/demo.sh

test:
	@scripts/install.sh build test
	@scripts/test.sh

build:
	@scripts/install.sh build
	@scripts/build.sh release

# The C++ tests under another preset.
debug asan:
	@scripts/install.sh build
	@scripts/build.sh $@
	@ctest --preset $@

# The tests of the C interface, with its threads, under address, undefined-behaviour and thread
# sanitizers.
sanitize:
	@scripts/install.sh build
	@scripts/sanitize.sh

# Backward passes beside PyTorch's, on this machine's GPU: docs/benchmarks.md.
bench:
	@scripts/install.sh build
	@scripts/bench.sh run

# What each part of the planner is worth there: docs/benchmarks.md.
bench-ablate:
	@scripts/install.sh build
	@scripts/bench.sh ablate

# How long planning takes, against the targets; the figures go to bench/results.
bench-plan:
	@scripts/install.sh build
	@scripts/build.sh release bench-plan
	@mkdir -p bench/results
	@build/release/bin/bench-plan --out bench/results/plan_$$(git rev-parse --short HEAD).json

# make fuzz SECONDS=3600 runs the fuzzer that make test runs for 30 seconds.
SECONDS ?= 30
fuzz:
	@scripts/install.sh build test
	@scripts/fuzz.sh $(SECONDS)

# make soak HOURS=8 runs the long checks and goes on where the last run stopped: docs/checks.md.
HOURS ?= 1
soak:
	@scripts/install.sh build test
	@scripts/build.sh release retrograd soak_graphs plan_digest
	@scripts/build.sh fuzz graph_fuzzer
	@scripts/soak.py --hours $(HOURS)

# Ten minutes of random graphs on this machine's NVIDIA GPU, some under compute-sanitizer.
soak-gpu:
	@scripts/install.sh build
	@scripts/build.sh release soak_graphs
	@scripts/soak.py --hours 0.167 --only gpu

# Which planted bugs the tests catch: docs/checks.md. make mutants ONLY=fusion tries a folder's, or
# one by its id; a stopped run goes on where it stopped.
mutants:
	@scripts/install.sh build test
	@scripts/venv.sh
	@python3 scripts/mutants.py $(if $(ONLY),--only $(ONLY))

# What a machine with an NVIDIA GPU needs to run all of this, in the folder gpu-bundle.
gpu-bundle:
	@scripts/install.sh build
	@scripts/cudnn_headers.sh
	@scripts/build.sh release retrograd retrograd_shared fusion-explain cuda_attention_test cuda_convolution_test device_conformance_test
	@tools/gpu_bundle.sh gpu-bundle --keep bench $(addprefix --keep ,$(wildcard models/*.py)) --test cuda_attention_test --test cuda_convolution_test --test device_conformance_test

format:
	@scripts/install.sh lint
	@git ls-files '*.cc' '*.h' | xargs clang-format -i

# make lint FILES="graph/ir/op.cc" looks at some files only.
lint:
	@scripts/install.sh build lint
	@scripts/lint.sh $(FILES)

clean:
	@rm -rf build
