#!/bin/sh
# `make lint`: every check by name, all of them even if one fails, and the exit code says whether all passed. What a
# check prints is shown only if it fails. Without clang its two checks are skipped by name.
set -u
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=

check() { # a name, then the command
    name=$1
    shift
    if "$@" >"$out" 2>&1; then
        printf 'lint: %-14s ok\n' "$name"
    else
        printf 'lint: %-14s FAILED\n' "$name"
        cat "$out"
        failed="$failed $name"
    fi
}

layout() { find include src cli python test examples bench plugins -name '*.[ch]' -exec clang-format --dry-run -Werror {} +; }

test_names() { # pytest imports test files by their names, so two folders must not have the same one
    twice=$(find test -name 'test_*.py' | sed 's|.*/||' | sort | uniq -d)
    [ -z "$twice" ] || { echo "in two folders of test/: $twice"; return 1; }
}

clang_build() { # clang's warnings are others than gcc's; nothing is run, so it is compiled as fast as can be
    [ -e build-clang/build.ninja ] || CC=clang meson setup build-clang -Dwerror=true -Doptimization=0 -Ddebug=false || return 1
    meson compile -C build-clang
}

with_program() { # the check in $2... needs the program $1
    program=$1
    shift
    if command -v "$program" >/dev/null 2>&1; then
        check "$@"
    else
        printf 'lint: %-14s skipped: there is no %s (apt-get install %s)\n' "$1" "$program" "$program"
    fi
}

with_program clang-format layout layout
check includes python tools/check_includes.py
check tables python tools/check_tables.py
check parameters python tools/check_parameters.py
check docs python tools/make_docs.py --check
check test-names test_names
check ruff ruff check .
check ruff-format ruff format --check .
check mypy mypy
with_program clang clang clang_build
[ -z "$failed" ] || {
    echo "lint: failed:$failed"
    exit 1
}
