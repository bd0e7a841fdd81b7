#!/bin/sh
# Makes a machine ready to build and test SOL: Debian packages (installed when run as root, named otherwise) and the
# Python environment .venv with the versions of requirements.txt; with the argument `bench` also the systems that SOL is
# compared with, with `deploy` those that only deploy, with `jax` or `tensorflow` the environment of that framework's
# tests, with `opencl`, `nvidia` or `ve` what tests of that device need, with `all` what `make test-all` needs. Says what it does; does
# nothing the second time.
set -eu
cd "$(dirname "$0")/.."

# Debian package, and a file or program that shows it is there
PACKAGES="
gcc               gcc
make              make
pkg-config        pkg-config
protobuf-c-compiler protoc-c
libprotobuf-c-dev /usr/include/protobuf-c/protobuf-c.h
libsodium-dev     /usr/include/sodium.h
libcmocka-dev     /usr/include/cmocka.h
python3           python3
"
# Wanted by `make lint`, by tests that otherwise say why they are skipped, and by pictures
EXTRAS="
clang             clang
libclang-rt-dev   /usr/share/doc/libclang-rt-dev
clang-format      clang-format
graphviz          dot
valgrind          valgrind
gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
libopenblas-dev   /usr/share/doc/libopenblas-dev
libdnnl-dev       /usr/include/oneapi/dnnl/dnnl.h
gcc-arm-linux-gnueabihf arm-linux-gnueabihf-gcc
libc6-dev-armhf-cross /usr/arm-linux-gnueabihf/include/stdio.h
gcc-riscv64-linux-gnu riscv64-linux-gnu-gcc
libc6-dev-riscv64-cross /usr/riscv64-linux-gnu/include/stdio.h
gcc-arm-none-eabi arm-none-eabi-gcc
libnewlib-arm-none-eabi /usr/share/doc/libnewlib-arm-none-eabi
qemu-user         qemu-aarch64
qemu-system-arm   qemu-system-arm
cmake             cmake
g++               g++
pocl-opencl-icd   /etc/OpenCL/vendors/pocl.icd
ocl-icd-libopencl1 /usr/share/doc/ocl-icd-libopencl1
"
TORCHVISION=0.28.0
INTEL_OPENCL=2026.2.0 # a second implementation, in an environment of its own: it takes 800 MB
NVRTC=13.5.37 # NVIDIA's compiler: in an environment of its own, because devices of tests should not depend on it
VEDA=2.3.1
TIMM=1.0.31 # without its dependencies, as torchvision

say() { printf 'setup: %s\n' "$*"; }

missing() { # names the packages of the table in $1 whose file or program is not there
    echo "$1" | while read -r package shown; do
        [ -n "$package" ] || continue
        case $shown in
            /*) [ -e "$shown" ] || echo "$package" ;;
            *) command -v "$shown" >/dev/null 2>&1 || echo "$package" ;;
        esac
    done
}

python_missing() { # the interpreter that is used needs venv and its headers
    python3 - <<'PY' 2>/dev/null || echo python3-venv python3-dev
import ensurepip, os, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
PY
}

debian() {
    need="$(missing "$PACKAGES") $(python_missing)"
    want="$(missing "$EXTRAS")"
    # shellcheck disable=SC2086
    set -- $need $want
    [ $# -gt 0 ] || return 0
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Debian packages: $*"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
        return 0
    fi
    # shellcheck disable=SC2086
    set -- $need
    if [ $# -gt 0 ]; then
        say "these Debian packages are missing: $*"
        say "install them (apt-get install $*), then call this again"
        exit 1
    fi
    # shellcheck disable=SC2086
    set -- $want
    say "without these Debian packages some checks are skipped: $*"
}

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

python_environment() {
    stamp=.venv/.sol-$(cat requirements.txt tools/setup.sh | cksum | tr ' ' -)
    [ -e "$stamp" ] && return 0
    [ -x .venv/bin/python ] || { say "making .venv"; python3 -m venv .venv; }
    torch=$(sed -n 's/^torch==//p' requirements.txt)
    if ! .venv/bin/python -c "import importlib.metadata as m; assert m.version('torch').split('+')[0] == '$torch'" 2>/dev/null; then
        say "installing torch $torch (CPU build)"
        pip install -q "torch==$torch+cpu" || {
            say "this index has no CPU build of torch: taking its default build"
            pip install -q "torch==$torch"
        }
    fi
    say "installing Python packages of requirements.txt"
    pip install -q -r requirements.txt
    # its CPU build goes with that of torch; the default build does not, and `import torchvision` then fails outside of tests
    pip install -q --no-deps "torchvision==$TORCHVISION+cpu" 2>/dev/null || pip install -q --no-deps "torchvision==$TORCHVISION"
    rm -f .venv/.sol-*
    : > "$stamp"
    say "ready"
}

in_place() { # the package is used where it lies: a path file, and the entry points that an installation would have
    site=$(echo .venv/lib/python3.*/site-packages)
    [ "$(cat "$site/sol.pth" 2>/dev/null)" = "$PWD/python" ] || echo "$PWD/python" > "$site/sol.pth"
    info=python/sol.egg-info
    [ -e $info/entry_points.txt ] && [ $info/entry_points.txt -nt pyproject.toml ] && return 0
    mkdir -p $info
    version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build | head -1)
    printf 'Metadata-Version: 2.1\nName: sol\nVersion: %s\n' "$version" > $info/PKG-INFO
    .venv/bin/python - > $info/entry_points.txt <<'PY'
import tomllib
for group, names in tomllib.load(open("pyproject.toml", "rb"))["project"].get("entry-points", {}).items():
    print(f"[{group}]", *(f"{k} = {v}" for k, v in names.items()), "", sep="\n")
PY
}

more() { # packages for $1, listed in the file $2
    stamp=.venv/.$1-$(cksum < "$2" | tr ' ' -)
    [ -e "$stamp" ] && return 0
    say "installing $3"
    pip install -q -r "$2"
    rm -f ".venv/.$1-"*
    : > "$stamp"
}

peers() { # those that are deployed only: in an environment of their own, which sees .venv, for they want much else
    stamp=.venv-deploy/.$(cksum < bench/requirements-deploy.txt | tr ' ' -)
    [ -e "$stamp" ] && return 0
    say "installing the systems that SOL's deployment is compared with"
    python3 -m venv .venv-deploy
    printf '%s\n' "$PWD"/.venv/lib/python3.*/site-packages "$PWD/python" \
        > "$(echo .venv-deploy/lib/python3.*/site-packages)/main.pth"
    .venv-deploy/bin/python -m pip --disable-pip-version-check install -q -r bench/requirements-deploy.txt
    : > "$stamp"
}

opencl() { # Intel's implementation beside those that are installed: the folder .venv-opencl/vendors names all
    stamp=.venv-opencl/.$INTEL_OPENCL
    [ -e "$stamp" ] && return 0
    [ "$(uname -m)" = x86_64 ] || return 0
    say "installing Intel's OpenCL runtime $INTEL_OPENCL"
    python3 -m venv .venv-opencl
    .venv-opencl/bin/python -m pip --disable-pip-version-check install -q \
        "intel-opencl-rt==$INTEL_OPENCL" "intel-cmplr-lib-rt==$INTEL_OPENCL"
    mkdir -p .venv-opencl/vendors
    cp /etc/OpenCL/vendors/*.icd .venv-opencl/vendors/ 2>/dev/null || true
    echo "$PWD/.venv-opencl/lib/libintelocl.so" > .venv-opencl/vendors/intel.icd
    : > "$stamp"
}

nvidia() { # NVRTC, which compiles without a graphics card
    stamp=.venv-nvidia/.$NVRTC
    [ -e "$stamp" ] && return 0
    say "installing NVIDIA's compiler NVRTC $NVRTC"
    python3 -m venv .venv-nvidia
    .venv-nvidia/bin/python -m pip --disable-pip-version-check install -q "nvidia-cuda-nvrtc==$NVRTC"
    : > "$stamp"
}

ve() { # NEC's VEDA, which tests run on a double of its driver, and a compiler for Vector Engines where Debian has it
    stamp=.venv-ve/.$VEDA
    [ -e "$stamp" ] && return 0
    [ "$(uname -m)" = x86_64 ] || return 0
    say "installing NEC's VEDA $VEDA"
    python3 -m venv .venv-ve
    .venv-ve/bin/python -m pip --disable-pip-version-check install -q "veda==$VEDA"
    command -v clang-19 > /dev/null || say "clang-19 is not installed, so no objects for Vector Engines are compiled (apt install clang-19)"
    : > "$stamp"
}

jax() { # an environment of its own, which sees .venv
    stamp=.venv-jax/.$(cksum < requirements-jax.txt | tr ' ' -)
    [ -e "$stamp" ] && return 0
    say "making .venv-jax"
    python3 -m venv .venv-jax
    printf '%s\n' "$PWD"/.venv/lib/python3.*/site-packages "$PWD/python" \
        > "$(echo .venv-jax/lib/python3.*/site-packages)/main.pth"
    .venv-jax/bin/python -m pip --disable-pip-version-check install -q -r requirements-jax.txt
    rm -f .venv-jax/.[0-9]*
    : > "$stamp"
}

tensorflow() { # TensorFlow wants other versions than .venv has: an environment of its own, which uses the package where it lies
    stamp=.venv-tensorflow/.$(cat requirements-tensorflow.txt requirements.txt | cksum | tr ' ' -)
    [ -e "$stamp" ] && return 0
    say "making .venv-tensorflow"
    python3 -m venv .venv-tensorflow
    torch=$(sed -n 's/^torch==//p' requirements.txt)
    set -- .venv-tensorflow/bin/python -m pip --disable-pip-version-check install -q
    "$@" "torch==$torch+cpu" 2>/dev/null || "$@" "torch==$torch"
    "$@" -r requirements-tensorflow.txt
    echo "$PWD/python" > "$(echo .venv-tensorflow/lib/python3.*/site-packages)/sol.pth"
    rm -f .venv-tensorflow/.[0-9]*
    : > "$stamp"
}

debian
python_environment
in_place
case ${1:-} in
    bench) more bench bench/requirements.txt "the systems that SOL is compared with" ;;
    deploy)
        more bench bench/requirements.txt "the systems that SOL is compared with"
        peers
        ;;
    jax) jax ;;
    tensorflow) tensorflow ;;
    all)
        jax
        tensorflow
        say "installing timm, whose networks make test-all tries"
        pip install -q --no-deps "timm==$TIMM"
        opencl
        nvidia
        ve
        ;;
    opencl) opencl ;;
    nvidia) nvidia ;;
    ve) ve ;;
esac
