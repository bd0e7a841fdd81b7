#!/bin/sh
# Tries the wheels of dist/ where nothing of this checkout is seen; needs root, debootstrap and, for aarch64, qemu-user.
#
# x86_64: a fresh Debian in build-wheel/try, entered by chroot, with Python alone: the wheel is installed, `sol doctor` says that
# there is no compiler and ends with 4; then gcc is installed, the doctor is content, an ONNX model made there runs, and runs again
# from the cache without a compiler. aarch64: a Debian for ARM64, unpacked only, whose Python runs in the emulator with NumPy and
# ONNX for ARM64; kernels are compiled by the cross compiler, which the emulator starts as any program.
set -eu
cd "$(dirname "$0")/.."
TRY=$PWD/build-wheel/try
MIRROR=${MIRROR:-http://deb.debian.org/debian}
RELEASE=${RELEASE:-bookworm}
PYTHON=3.11 # of that release

say() { printf 'wheel-try: %s\n' "$*"; }
fail() { say "FAILED: $*"; exit 1; }

wheels() { # $1: architecture, $2: folder: the wheel, and what the trial needs besides
    mkdir -p "$2"
    rm -f "$2"/sol-*
    cp dist/sol-*manylinux_2_28_"$1".whl "$2"
    python3 -m pip --disable-pip-version-check download -q -d "$2" --only-binary=:all: --python-version $PYTHON --platform "manylinux_2_28_$1" \
        --platform "manylinux_2_27_$1" --platform "manylinux2014_$1" --platform "manylinux_2_17_$1" numpy onnx
}

try_x86_64() {
    root=$TRY/x86_64
    say "a fresh Debian $RELEASE, with Python and no compiler"
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$RELEASE" "$root" "$MIRROR" > "$TRY/debootstrap.log"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    wheels x86_64 "$root/wheels"
    cp examples/onnx_numpy.py "$root/root/onnx_numpy.py"
    within() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/v/bin:/usr/bin:/bin SOL_CACHE=/root/cache "$@"; }
    within python3 -m venv /v
    within pip install -q --no-index --find-links /wheels sol onnx
    within sol --version
    code=0
    within sol doctor > "$TRY/without.log" || code=$?
    grep -A1 BROKEN "$TRY/without.log"
    [ "$code" = 4 ] || fail "without a compiler: exit code $code, expected 4"
    within python3 /root/onnx_numpy.py > "$TRY/python.log" 2>&1 && fail "a network was compiled without a compiler"
    tail -1 "$TRY/python.log"
    say "installing gcc there"
    within apt-get update -qq
    within apt-get install -y -qq --no-install-recommends gcc libc6-dev > "$TRY/apt.log" 2>&1
    within sol doctor || fail "the doctor finds something broken"
    within python3 -m sol > "$TRY/python.log" || fail "python -m sol"
    if grep -qw avx512dq /proc/cpuinfo; then bytes=64; elif grep -qw avx2 /proc/cpuinfo; then bytes=32; else bytes=16; fi
    grep -q "vectors of $bytes bytes" "$TRY/python.log" || fail "it does not see this processor's vectors of $bytes bytes"
    within python3 /root/onnx_numpy.py
    within env PATH=/v/bin python3 /root/onnx_numpy.py > "$TRY/python.log" 2>&1 || fail "without a compiler in PATH it does not run from the cache"
    say "without a compiler in PATH it runs from the cache"
    say "x86_64: good"
}

try_aarch64() {
    root=$TRY/aarch64
    if [ ! -e "$root/ready" ]; then
        say "a Debian $RELEASE for ARM64, unpacked"
        rm -rf "$root"
        mkdir -p "$root"
        debootstrap --arch=arm64 --foreign --variant=minbase --include=python3 "$RELEASE" "$root" "$MIRROR" > "$TRY/debootstrap.log"
        for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
        : > "$root/ready"
    fi
    wheels aarch64 "$TRY/wheels-aarch64"
    rm -rf "$TRY/site" "$TRY/cache"
    python3 -m pip --disable-pip-version-check install -q --no-deps --no-index --find-links "$TRY/wheels-aarch64" --target "$TRY/site" --only-binary=:all: \
        --python-version $PYTHON --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
        --platform manylinux_2_17_aarch64 sol numpy onnx ml_dtypes protobuf typing_extensions
    emulated() { # -march=native would be a question to this machine's processor
        env PYTHONPATH="$TRY/site" SOL_CACHE="$TRY/cache" SOL_TARGET=neon SOL_COMPILER=aarch64-linux-gnu-gcc SOL_AUTOTUNE=off \
            qemu-aarch64 -L "$root" "$@"
    }
    emulated "$TRY/site/bin/sol" --version
    emulated "$root/usr/bin/python$PYTHON" -c 'import platform, numpy; print(platform.machine(), "NumPy", numpy.__version__)'
    emulated "$root/usr/bin/python$PYTHON" -m sol || fail "the doctor finds something broken"
    emulated "$root/usr/bin/python$PYTHON" examples/onnx_numpy.py || fail "the model does not run"
    say "aarch64: good"
}

[ $# -gt 0 ] || set -- x86_64 aarch64
for architecture in "$@"; do "try_$architecture"; done
