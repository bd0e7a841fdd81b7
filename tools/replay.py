#!/usr/bin/env python3
"""Checks whether this tree generates the same C code as another commit. Run by `make replay`.

replay.py [--base COMMIT] [--quick] [-v] [NAME...]

Both sides print hashes of all kernels and module tables for the same graphs (test/replay/replay.c). The other commit
is built in build-replay/base, where its hashes are kept, too. Exit code: 0 if all are equal, 1 if something differs,
2 if the check failed.
"""

import argparse
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build-replay"
BASE, HERE = PLACE / "base", ROOT / "build" / "test"
PYTHON, MESON, NINJA = (ROOT / ".venv" / "bin" / n for n in ("python", "meson", "ninja"))
RANDOM_SEEDS = 40
QUICK = ["resnet50", "mobilenet_v2-train", "bert", "gpt", "lstm-train", "unet-train", "zoo-diffusion"]


class Trouble(Exception):
    """The check cannot run; the text says why."""


def run(*command, **options) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, **options)
    if done.returncode:
        raise Trouble(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# -- the other commit


def find_base(name: str | None) -> str:
    """The given commit, or the one where the branch left main."""
    if name:
        return run("git", "rev-parse", "--verify", f"{name}^{{commit}}").strip()
    for main in ("main", "origin/main"):
        try:
            return run("git", "merge-base", "HEAD", main).strip()
        except Trouble:
            continue
    return run("git", "rev-parse", "HEAD").strip()


def build_base(commit: str) -> Path:
    """The program of a commit. It is built from a copy of the commit's files, once."""
    program, stamp = BASE / "build" / "test" / "replay", BASE / "COMMIT"
    if stamp.exists() and stamp.read_text() == commit and program.exists():
        return program
    try:
        run("git", "cat-file", "-e", f"{commit}:test/replay/replay.c")
    except Trouble:
        raise Trouble(
            f"{commit[:12]} has no test/replay/replay.c: name a later commit, as in make replay BASE=main"
        ) from None
    print(f"building {commit[:12]}", flush=True)
    shutil.rmtree(BASE, ignore_errors=True)
    (BASE / "source").mkdir(parents=True)
    files = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
    run("tar", "-xmf", "-", "-C", BASE / "source", stdin=files.stdout)
    if files.wait():
        raise Trouble(f"git archive {commit}: exit code {files.returncode}")
    run(MESON, "setup", BASE / "build", BASE / "source", "-Dpython=disabled")
    run(NINJA, "-C", BASE / "build", "test/replay")
    stamp.write_text(commit)
    return program


# -- graphs


def from_pytorch(names: list[str]) -> dict[str, Path]:
    """Traces networks from PyTorch. A network is traced again only if its sources changed."""
    scripts = ["test/replay/graphs.py", "test/python/networks.py", "test/python/zoo.py", "bench/odd.py"]
    digest = hashlib.sha256(b"".join((ROOT / s).read_bytes() for s in scripts)).hexdigest()[:12]
    folder = PLACE / f"graphs-{digest}"
    wanted = sorted({n.removesuffix("-train") for n in names}) if names else []
    there = {p.stem for p in folder.glob("*.sol")}
    missing = [n for n in wanted if n not in there or f"{n}-train" not in there]
    if missing if names else not (folder / "all").exists():
        print(f"tracing {' '.join(missing) or 'networks'} with PyTorch: once, it takes a while", flush=True)
        for old in PLACE.glob("graphs-*"):
            if old != folder:
                shutil.rmtree(old)
        environment = {**os.environ, "SOL_LOG": "ERROR"}
        run(PYTHON, "test/replay/graphs.py", folder, *missing, env=environment)
        if not names:
            (folder / "all").touch()
    return {p.stem: p for p in sorted(folder.glob("*.sol")) if not names or p.stem in names}


def texts_of_passes() -> dict[str, str]:
    """The graphs before the arrows in test/passes."""
    found = {}
    for path in sorted((ROOT / "test/passes").glob("*.sol")):
        for i, case in enumerate(path.read_text().split("\n== ")[1:]):
            graph = case.partition("-->")[0]
            found[f"passes-{path.stem}-{i}"] = graph[graph.index("\ngraph ") + 1 :]
    return found


def texts_of_cases() -> dict[str, str]:
    cases = re.split(r"^(?=graph )", (ROOT / "test/random/cases.sol").read_text(), flags=re.M)[1:]
    return {f"case-{i}": case for i, case in enumerate(cases)}


def texts_of_tests() -> dict[str, str]:
    """The graphs that are strings in the C tests and their headers."""
    found = {}
    for path in sorted((ROOT / "test").glob("*.[ch]")):
        strings = re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', path.read_text())
        i = 0
        for m in strings:
            parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', m.group())
            text = "".join(parts).replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
            if "\noutput %" in text and re.match(r"(graph|input|param|const) ", text):
                found[f"{path.stem.removesuffix('_test')}-{i}"] = text
                i += 1
    return found


def texts_of_random() -> dict[str, str]:
    found = {}
    for seed in range(1, RANDOM_SEEDS + 1):
        printed = run(HERE / "random_test", "--print", "--first", seed, "--seeds", 1)
        found[f"random-{seed}"] = re.sub(r"^\d+ cases.*$", "", printed, flags=re.M)
    return found


def small_graphs() -> dict[str, Path]:
    """The graphs of the tests, each also with its gradient."""
    folder, found = PLACE / "small", {}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in (texts_of_passes() | texts_of_cases() | texts_of_tests() | texts_of_random()).items():
        for what, more in ((name, ""), (f"{name}-train", "# gradients of all\n")):
            found[what] = folder / f"{what}.sol"
            found[what].write_text(f"{text.rstrip()}\n{more}")
    return found


SMALL = r"(\w+?)-(.*-)?\d+(-train)?"  # their names


def find_graphs(names: list[str]) -> dict[str, Path]:
    """The graphs of these names; without names, all."""
    if not names:
        return from_pytorch([]) | small_graphs()
    few = small_graphs() if any(re.fullmatch(SMALL, n) for n in names) else {}
    networks = [n for n in names if n not in few]
    graphs = (from_pytorch(networks) if networks else {}) | {n: few[n] for n in names if n in few}
    if missing := [n for n in names if n not in graphs]:
        raise Trouble(f"there is no graph {', '.join(missing)}; there are: {', '.join(graphs)}")
    return graphs


# -- comparing


@dataclass
class Side:
    """The output of one side for a graph with one setting."""

    kernels: list[str] = field(default_factory=list)
    rest: dict[str, str] = field(default_factory=dict)  # module, data, rejected


def parse(text: str) -> dict[str, Side]:
    sides: dict[str, Side] = {}
    for line in text.splitlines():
        what, _, value = line.removeprefix("==== ").partition(" ")
        if what == "setting":
            side = sides[value] = Side()
        elif what == "kernel":
            side.kernels.append(value[:32])
        else:
            side.rest[what.rstrip(":")] = value
    return sides


def say(program: Path, graph: Path, settings: list[str], *options: str) -> str:
    """The output of one side. If the program crashes, a line says so."""
    options += tuple(word for s in settings for word in ("--setting", s))
    environment = {**os.environ, "SOL_LOG": "ERROR", "SOL_MACHINE": "assumed"}
    done = subprocess.run([program, *options, graph], capture_output=True, text=True, env=environment)
    if done.returncode < 0 or not done.stdout:
        lines = (done.stderr or "nothing").splitlines()
        return f"{done.stdout}\n==== rejected: exit code {done.returncode}, {lines[-1]}\n".lstrip("\n")
    return done.stdout


def kept(program: Path, graph: Path, settings: list[str]) -> dict[str, Side]:
    """The same for the other commit, which runs only once."""
    key = hashlib.sha256(graph.read_bytes() + repr(settings).encode()).hexdigest()[:24]
    path = BASE / "hashes" / key
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(say(program, graph, settings))
    return parse(path.read_text())


def difference(base: Side | None, here: Side | None) -> str:
    """The difference in words; "": there is none."""
    if base is None or here is None:
        return "only one side has this setting"
    if base == here:
        return ""
    if "rejected" in here.rest or "rejected" in base.rest:
        return f"here: {here.rest.get('rejected', 'generated')}; there: {base.rest.get('rejected', 'generated')}"
    other = (Counter(here.kernels) - Counter(base.kernels)).total()
    gone = (Counter(base.kernels) - Counter(here.kernels)).total()
    words = []
    if other or gone:
        words.append(f"{other} of {len(here.kernels)} kernels differ")
    if len(here.kernels) != len(base.kernels):
        words.append(f"{len(base.kernels)} kernels there")
    elif not words and here.kernels != base.kernels:
        words.append("kernels in another order")
    words += [f"{what} differs" for what in ("module", "data") if here.rest.get(what) != base.rest.get(what)]
    return ", ".join(words)


@dataclass
class Result:
    name: str
    differ: dict[str, str]  # by setting
    settings: int
    kernels: int
    rejected: str | None


def compare(programs: tuple[Path, Path], name: str, graph: Path, settings: list[str]) -> Result:
    base = kept(programs[0], graph, settings)
    here = parse(say(programs[1], graph, settings, "--verify"))
    differ = {s: d for s in settings if (d := difference(base.get(s), here.get(s)))}
    rejected = [s.rest["rejected"] for s in here.values() if "rejected" in s.rest]
    kernels = sum(len(s.kernels) for s in here.values())
    return Result(name, differ, len(settings), kernels, rejected[0] if rejected else None)


# -- reporting


def sections(text: str) -> dict[str, list[str]]:
    """Kernels and tables with their texts, by their first lines."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines(keepends=True):
        if line.startswith("==== "):
            lines = found.setdefault(line, [])
        else:
            lines.append(line)
    return found


def show_texts(programs: tuple[Path, Path], result: Result, graph: Path) -> None:
    """Prints the first texts that differ, and writes all texts of both sides to files."""
    setting = next(iter(result.differ))
    texts = [say(p, graph, [setting], "--text") for p in programs]
    paths = [PLACE / "texts" / side / f"{result.name}-{setting.replace(' ', '-')}.c" for side in ("there", "here")]
    for path, text in zip(paths, texts, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    there, here = (sections(t) for t in texts)
    hashes = [{head.split()[2] for head in side if len(head.split()) > 2} for side in (there, here)]
    old = [h for h in there if h.split()[2:] and h.split()[2] not in hashes[1]]
    new = [h for h in here if h.split()[2:] and h.split()[2] not in hashes[0]]
    print(f"{result.name}, {setting}: the first texts that differ, of {paths[0]} and {paths[1]}:")
    for a, b in list(zip(old, new, strict=False))[:1]:
        sys.stdout.writelines(difflib.unified_diff([a, *there[a]], [b, *here[b]], "there", "here"))


def tell(results: list[Result]) -> None:
    """Prints a line for each network, for each group of small graphs, and for each graph that differs."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        small = re.fullmatch(SMALL, r.name)
        groups.setdefault(f"graphs of {small.group(1)}" if small else r.name, []).append(r)
    for name, group in groups.items():
        same = [r for r in group if not r.differ]
        rejected = [r for r in same if r.rejected]
        if same:
            many = f", {len(same)} graphs" if len(group) > 1 else ""
            words = f"{same[0].settings} settings{many}, {sum(r.kernels for r in same)} kernels"
            no = (
                f"; {len(rejected)} rejected on both sides, such as {rejected[0].name}: {rejected[0].rejected}"
                if rejected
                else ""
            )
            print(f"{name}: equal ({words}{no})")
        for r in group:
            if r.differ:
                print(f"{r.name}: differs in {len(r.differ)} of {r.settings} settings")
                for setting, words in r.differ.items():
                    print(f"    {setting}: {words}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="the other commit (default: where this branch left main)")
    parser.add_argument("--quick", action="store_true", help="some networks, one setting: half a minute")
    parser.add_argument("-v", "--verbose", action="store_true", help="shows the first texts that differ")
    parser.add_argument(
        "names",
        nargs="*",
        help="networks and small graphs, such as resnet50, resnet50-train, passes-dead-0 (default: all)",
    )
    o = parser.parse_args()
    commit = find_base(o.base)
    there = build_base(commit)
    settings = run(HERE / "replay", "--settings").splitlines()[: 1 if o.quick else None]
    names = o.names or (QUICK if o.quick else [])
    graphs = find_graphs(names)
    programs = (there, HERE / "replay")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda item: compare(programs, *item, settings), graphs.items()))
    tell(results)
    differ = [r for r in results if r.differ]
    if differ and o.verbose:
        show_texts(programs, differ[0], graphs[differ[0].name])
    print(f"{len(results)} graphs, {sum(r.kernels for r in results)} kernels against {commit[:12]}: "
          + (f"{len(differ)} differ" if differ else "all equal"))  # fmt: skip
    return bool(differ)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        print(f"replay: {trouble}", file=sys.stderr)
        sys.exit(2)
