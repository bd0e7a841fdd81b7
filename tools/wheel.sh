#!/bin/sh
# Builds wheels that any Linux with glibc 2.28 or newer takes (manylinux_2_28), for any Python from 3.11 on: one for each
# architecture given, x86_64 and aarch64 by default. They are written to dist/.
#
# Symbols of this machine's glibc may be newer than 2.28, so the compiler is clang as PyPI's `ziglang` packs it, which has the
# symbol tables of every glibc and cross-compiles. What SOL links besides (libsodium, protobuf-c) is linked statically, from
# Debian's packages of that architecture; they are unpacked below build-wheel/, and nothing is installed. auditwheel has the last
# word. `sh tools/wheel_try.sh` tries the result.
set -eu
cd "$(dirname "$0")/.."

GLIBC=2.28
HERE=$PWD/build-wheel
PYTHON=$HERE/venv/bin/python
PACKAGES="libsodium-dev libprotobuf-c-dev"

say() { printf 'wheel: %s\n' "$*"; }

environment() { # the tools, with exact versions
    stamp=$HERE/venv/.sol-$(cksum < tools/requirements-wheel.txt | tr ' ' -)
    [ -e "$stamp" ] && return 0
    say "installing the tools of tools/requirements-wheel.txt"
    python3 -m venv "$HERE/venv"
    "$PYTHON" -m pip --disable-pip-version-check install -q -r tools/requirements-wheel.txt
    : > "$stamp"
}

apt() { # apt-get with a state of its own, so that the machine's stays as it is
    state=$1/apt
    arch=$2
    shift 2
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    : > "$state/status"
    apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$state" -o Dir::State::lists="$state/lists" \
        -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}

libraries() { # $1: architecture, $2: Debian's name of it; headers and static libraries alone, in one folder
    root=$HERE/$1
    stamp=$root/.sol-$(echo "$PACKAGES" | cksum | tr ' ' -)
    [ -e "$stamp" ] && return 0
    say "unpacking Debian's $PACKAGES for $2"
    rm -rf "$root"
    mkdir -p "$root/debian" "$root/lib/pkgconfig"
    apt "$root" "$2" update
    # shellcheck disable=SC2086
    (cd "$root/debian" && apt "$root" "$2" download $PACKAGES)
    for package in "$root"/debian/*.deb; do dpkg-deb -x "$package" "$root/debian"; done
    cp -r "$root/debian/usr/include" "$root/include"
    for name in sodium:-pthread protobuf-c:; do
        cp "$root/debian/usr/lib/$1-linux-gnu/lib${name%%:*}.a" "$root/lib"
        file=$root/debian/usr/lib/$1-linux-gnu/pkgconfig
        for pc in "$file/${name%%:*}.pc" "$file/lib${name%%:*}.pc"; do
            [ -e "$pc" ] || continue
            printf 'Name: %s\nDescription: static\nVersion: %s\nCflags: -I%s\nLibs: -L%s -l%s %s\n' "${name%%:*}" \
                "$(sed -n 's/^Version: *//p' "$pc")" "$root/include" "$root/lib" "${name%%:*}" "${name#*:}" \
                > "$root/lib/pkgconfig/$(basename "$pc")"
        done
    done
    rm -rf "$root/debian" "$root/apt"
    : > "$stamp"
}

machine_file() { # $1: architecture
    cat > "$HERE/$1.ini" <<INI
[binaries]
c = ['$PYTHON', '-m', 'ziglang', 'cc', '-target', '$1-linux-gnu.$GLIBC']
ar = ['$PYTHON', '-m', 'ziglang', 'ar']
strip = '/bin/true'
pkg-config = 'pkg-config'
[built-in options]
c_args = ['-I$HERE/$1/include', '-Wno-macro-redefined'] # pyconfig.h
c_link_args = ['-Wl,-s']
[properties]
pkg_config_libdir = '$HERE/$1/lib/pkgconfig'
needs_exe_wrapper = true
[host_machine]
system = 'linux'
cpu_family = '$1'
cpu = '$1'
endian = 'little'
INI
}

wheel() { # $1: architecture
    say "building for $1, glibc $GLIBC"
    rm -rf "$HERE/made" "$HERE/build-$1" # options of another time would stay
    machine_file "$1"
    PATH=$HERE/venv/bin:$PATH _PYTHON_HOST_PLATFORM=linux-$1 "$PYTHON" -m pip --disable-pip-version-check wheel . -q --no-deps \
        --no-build-isolation -w "$HERE/made" -Cbuild-dir="$HERE/build-$1" -Csetup-args=--cross-file="$HERE/$1.ini"
    # `auto`, for the names of other architectures are not taken; nothing is left to be bundled, so it renames
    PATH=$HERE/venv/bin:$PATH "$PYTHON" -m auditwheel repair --plat auto -w dist "$HERE"/made/*.whl 2>"$HERE/auditwheel.log" ||
        { cat "$HERE/auditwheel.log"; exit 1; }
    made=$(ls dist/sol-*-cp311-abi3-manylinux_2_28_"$1".whl) || {
        cat "$HERE/auditwheel.log"
        say "expected a wheel for manylinux_2_28_$1"
        exit 1
    }
    say "$made: $(wc -c < "$made") bytes, auditwheel: clean"
}

[ $# -gt 0 ] || set -- x86_64 aarch64
environment
for architecture in "$@"; do
    case $architecture in
        x86_64) libraries x86_64 amd64 ;;
        aarch64) libraries aarch64 arm64 ;;
        *) say "there is no '$architecture': x86_64, aarch64"; exit 2 ;;
    esac
    wheel "$architecture"
done
