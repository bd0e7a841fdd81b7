"""ONNX's own backend cases: none may be wrong. The interpreter runs all of them (seconds), generated C some; test-all
runs all as C."""

import collections

import backend
import pytest

CASES = backend.collect("", networks=False)
EVERY = 25  # of the cases that pass with the interpreter, every 25th is also compiled in `make test`


@pytest.fixture(scope="module")
def results():
    return list(backend.every(CASES, "interpret"))


def test_none_is_wrong(results):
    wrong = [f"{r.case.name}: {r.reason}" for r in results if r.state == "wrong"]
    assert not wrong, "\n".join(wrong[:20])


def test_most_pass(results):
    count = collections.Counter(r.state for r in results)
    assert len(results) >= 2000
    assert count["pass"] + count["fixed"] >= 1500


def test_what_is_rejected_has_a_reason(results):
    for r in results:
        if r.state == "rejected":
            assert "type" in r.reason or "support" in r.reason or "translated" in r.reason or "opset" in r.reason or (
                "depends" in r.reason or "no row" in r.reason or "domain" in r.reason
            ), r.reason  # fmt: skip


def test_sample_compiled(results):
    good = [r.case for r in results if r.state in ("pass", "fixed")]
    wrong = [r for r in backend.every(good[::EVERY]) if r.state not in ("pass", "fixed")]
    assert not wrong, "\n".join(f"{r.case.name}: {r.reason}" for r in wrong)


@pytest.mark.slow
def test_all_compiled(tmp_path):
    results = list(backend.every(backend.collect()))
    with open(backend.sol_c.ROOT / "docs" / "operators-onnx.md", "w") as out:
        backend.report(results, out)
    wrong = [f"{r.case.name}: {r.reason}" for r in results if r.state == "wrong"]
    assert not wrong, "\n".join(wrong[:20])
