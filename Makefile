# Everything one does here, by name. `make` builds; nothing needs an environment to be activated.
.DEFAULT_GOAL := build

.PHONY: help setup build install asan tsan demo test test-c test-asan test-tsan test-python test-device test-jax test-tensorflow test-all fuzz bench bench-train bench-cuda bench-deploy bench-dynamic bench-tensorflow bench-jax bench-operators bench-compile wheel wheel-try replay nvidia-table counts lines docs lint format clean

PYTHON := .venv/bin/python
MESON := .venv/bin/meson
PYTEST := $(PYTHON) -m pytest -n auto --maxprocesses 4 --dist worksteal
export PATH := $(CURDIR)/.venv/bin:$(PATH)
TENSORFLOW := .venv-tensorflow/bin/python -m pytest -n auto --maxprocesses 2 test/tensorflow_frontend test/cross
CUDA := $(CURDIR)/build/test/libcuda_double.so
VE = ve.libveo=$(CURDIR)/build/test/ve/libveo.so.1,ve.libveda=$(wildcard $(CURDIR)/.venv-ve/lib/python3*/site-packages/veda/lib64/libveda.so.2),ve.compiler=cc
OPENCL := OCL_ICD_VENDORS=$(CURDIR)/.venv-opencl/vendors
# LLVM, in an OpenCL implementation, replaces the signal stack of a thread that ASan would free
ASAN := detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=1:allocator_may_return_null=1:use_sigaltstack=0

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## Debian packages and .venv
	@sh tools/setup.sh

build: setup ## libsol, the sol command, the Python extension
	@test -e build/build.ninja || $(MESON) setup build --prefix=/usr/local -Dwerror=true
	@$(MESON) compile -C build
	@ln -sf ../../build/python/_core.abi3.so python/sol/_core.abi3.so
	@ln -sf ../../build/src/ort/libsol_ort.so python/sol/libsol_ort.so
	@$(PYTHON) -m compileall -q python/sol # for users who may not write here

install: build ## libsol, its headers, the sol command and the Python package, in /usr/local (root; DESTDIR is respected)
	@$(MESON) install -C build --no-rebuild --quiet

asan: setup # warnings are the other build's: instrumented code has false ones
	@test -e build-asan/build.ninja || $(MESON) setup build-asan -Db_sanitize=address,undefined -Db_lundef=false \
	    -Dpython=disabled -Doptimization=1
	@$(MESON) compile -C build-asan

tsan: setup
	@test -e build-tsan/build.ninja || $(MESON) setup build-tsan -Db_sanitize=thread -Db_lundef=false -Dpython=disabled -Doptimization=1
	@$(MESON) compile -C build-tsan

demo: build ## ResNet-50 from PyTorch and as ONNX, compared and measured
	@$(PYTHON) examples/demo.py

test: lint test-c test-asan test-python test-jax test-tensorflow ## all small tests, about an hour on two cores

test-c: build
	$(MESON) test -C build --print-errorlogs

test-asan: asan
	ASAN_OPTIONS=$(ASAN) UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    $(MESON) test -C build-asan --print-errorlogs --timeout-multiplier 5

test-tsan: tsan ## queues, heaps and calls of networks on far: 10,000 calls from 8 threads with failures, under ThreadSanitizer
	TSAN_OPTIONS=die_after_fork=0:halt_on_error=1 SOL_DEVICE_CALLS=10000 \
	    $(MESON) test -C build-tsan --print-errorlogs --timeout-multiplier 5 device device_queue device_net device_far

test-python: build
	$(PYTEST) test -m "not slow"

test-jax: build ## a sample of the tests of the JAX frontend, in .venv-jax
	@sh tools/setup.sh jax
	.venv-jax/bin/python -m pytest -n auto --maxprocesses 2 test/jax_frontend -m "not slow"

test-tensorflow: build ## a sample of the tests of the TensorFlow frontend, in .venv-tensorflow
	@sh tools/setup.sh tensorflow
	$(TENSORFLOW) -m "not slow"

test-device: build ## a device type by its contract: DEVICE=far, opencl:1, or the path of a plug-in; K=word narrows it
	build/cli/sol-device-test $(if $(K),-k $(K)) $(or $(DEVICE),far)

test-all: lint test-c test-asan test-tsan build ## every network, operator table and size of the specification: hours
	@sh tools/setup.sh all
	SOL_RANDOM_SEEDS=60 build/test/random_test
	$(PYTEST) test
	.venv-jax/bin/python -m pytest test/jax_frontend
	$(TENSORFLOW)
	build/cli/sol-device-test opencl
	ASAN_OPTIONS=$(ASAN) SOL_DEVICE_CALLS=10000 build-asan/test/device_net_test
	SOL_DEVICE=far SOL_RANDOM_SEEDS=60 build/test/random_test
	$(OPENCL) build/test/opencl_test
	$(OPENCL) build/test/opencl_net_test --all
	for i in 0 1; do $(OPENCL) SOL_DEVICE=opencl:$$i build/test/random_test --seeds 12 --parts 6; done
	$(OPENCL) $(PYTHON) -m pytest test/python/test_opencl.py
	SOL_DEVICE_OPTIONS=nvidia.libcuda=$(CUDA),nvidia.nvrtc=$(CUDA),nvidia.cublas=$(CUDA),nvidia.cudnn=$(CUDA) $(PYTHON) -m pytest test/python/test_each_device.py -k nvidia
	SOL_DEVICE_OPTIONS=$(VE) $(PYTHON) -m pytest test/python/test_each_device.py -k ve
	SOL_DEVICE=far $(PYTEST) test -m "not slow"

fuzz: setup ## the ONNX reader for an hour; found files lie in build-fuzz/
	test/fuzz/run.sh 3600

wheel: ## Python wheels for x86-64 and ARM64 with glibc 2.28 or newer, in dist/
	@sh tools/wheel.sh

wheel-try: ## the same, tried: in a fresh Debian by chroot, and in an emulator (root, debootstrap, qemu-user)
	@sh tools/wheel_try.sh

bench: build ## SOL beside other systems; NETWORKS="resnet50 vgg16" SYSTEMS="sol eager" narrow it
	@sh tools/setup.sh bench
	$(PYTHON) bench/bench.py $(NETWORKS) $(if $(SYSTEMS),--systems $(SYSTEMS))

bench-train: build ## the same for a step of training: time and memory
	@sh tools/setup.sh bench
	$(PYTHON) bench/bench.py --train $(NETWORKS) $(if $(SYSTEMS),--systems $(SYSTEMS))

bench-cuda: build ## the same on NVIDIA's graphics card, with a PyTorch that has CUDA: PYTHON=..; ARGS="--train --tf32"
	$(PYTHON) bench/bench.py --device cuda $(NETWORKS) $(if $(SYSTEMS),--systems $(SYSTEMS)) $(ARGS)

bench-deploy: build ## what a deployed network takes, beside what the peers ship: bytes, files, start, memory, speed
	@sh tools/setup.sh deploy
	.venv-deploy/bin/python bench/deploy.py $(NETWORKS) $(if $(SYSTEMS),--systems $(SYSTEMS))

bench-compile: build ## what planning and printing cost a layer, over networks of growing size
	build/test/bench-compile

bench-tensorflow: build ## SOL beside eager Keras, tf.function and XLA; NETWORKS=.., ARGS="--train"
	@sh tools/setup.sh tensorflow
	.venv-tensorflow/bin/python bench/frameworks.py tensorflow $(NETWORKS) $(ARGS)

bench-jax: build ## SOL beside jax.jit; NETWORKS=.., ARGS="--train"
	@sh tools/setup.sh jax
	.venv-jax/bin/python bench/frameworks.py jax $(NETWORKS) $(ARGS)

bench-dynamic: build ## networks whose sizes vary: speed at each size, time to serve twenty; ARGS="--only train"
	@sh tools/setup.sh bench
	$(PYTHON) bench/dynamic.py $(NETWORKS) $(ARGS)

bench-operators: build ## operators alone at sizes that networks use, beside PyTorch eager; ARGS="--only topk gather"
	$(PYTHON) bench/operators.py $(ARGS)

replay: build ## is the generated C that of another commit? BASE=main, QUICK=1, V=1 shows texts, NETWORKS="resnet50" narrows it
	@$(PYTHON) tools/replay.py $(if $(BASE),--base $(BASE)) $(if $(QUICK),--quick) $(if $(V),-v) $(NETWORKS)

counts: build ## renews test/counts.txt, the instructions that kernels take, for the compiler at hand
	build/test/counts_test --renew

lines: ## how many lines each device needs: its files, rows and hooks; V=1 shows them
	@$(or $(wildcard $(PYTHON)),python3) tools/lines.py $(if $(V),-v)

nvidia-table: build ## compiles the tests' networks for NVIDIA's cards, for docs/nvidia.md; NETWORKS="bert gpt" narrows it: hours
	$(PYTHON) tools/nvidia_table.py $(NETWORKS)

docs: build ## reference pages from headers, docstrings and config.def
	$(PYTHON) tools/make_docs.py

lint: build ## layout, includes, tables, pages, ruff, mypy, the tree by clang
	@sh tools/lint.sh

format: setup
	find include src cli python test examples bench plugins -name '*.[ch]' -exec clang-format -i {} +
	.venv/bin/ruff check --fix -q . || true
	.venv/bin/ruff format -q .

clean:
	rm -rf build build-asan build-tsan build-clang build-fuzz build-replay python/sol/_core.abi3.so python/sol/libsol_ort.so
