#!/bin/sh
# Runs the fuzz target of the ONNX reader: test/fuzz/run.sh [SECONDS] [FOLDER]. The corpus grows in FOLDER/corpus (default
# build-fuzz), what was found lies beside it; test/fuzz/found has what was found before. Exit code 0: nothing was found.
set -e
cd "$(dirname "$0")/../.."
seconds=${1:-20}
build=${2:-build-fuzz}
export PATH="$PWD/.venv/bin:$PATH"
if [ ! -e "$build/build.ninja" ]; then
    CC=clang CFLAGS=-fsanitize=fuzzer-no-link meson setup "$build" -Db_sanitize=address,undefined -Db_lundef=false \
        -Dpython=disabled -Doptimization=1 -Dwerror=false >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
fi
ninja -C "$build" test/fuzz/onnx_fuzz # makes the build files anew where they are old
mkdir -p "$build/corpus" "$build/seeds" test/fuzz/found
[ -e "$build/seeds/function.onnx" ] || .venv/bin/python test/fuzz/make_corpus.py "$build/seeds"
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
exec "$build/test/fuzz/onnx_fuzz" -max_total_time="$seconds" -max_len=8192 -timeout=60 -rss_limit_mb=3000 \
    -artifact_prefix="$build/" "$build/corpus" "$build/seeds" test/fuzz/found
