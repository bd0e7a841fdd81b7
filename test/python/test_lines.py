"""`make lines`: a device is at most 1,000 lines, with its rows and hooks in files that others share."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def counted():
    """Files, their lines, lines of rows and hooks, and the sum, by device."""
    out = subprocess.run([sys.executable, ROOT / "tools/lines.py"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()[1:-1]]
    return {name: [int(n) for n in numbers] for name, *numbers in rows}


def test_a_device_is_small():
    devices = counted()
    assert devices.keys() >= {"x86", "arm64", "far", "opencl", "remote"}
    for name, (_, _, rows, together) in devices.items():
        assert together <= 1000, name
        assert rows > 0 or name == "remote"  # written from outside: nothing else knows of it
    source = ROOT / "src/device/far.c"
    assert devices["far"][:2] == [1, len(source.read_text().splitlines())]
    assert devices["arm64"][3] <= 300
    sys.path.insert(0, str(ROOT / "tools"))
    import lines

    text = lines.code("#if defined __aarch64__ // arm64\nint a;\n#if B\nint b;\n#endif\n#elif C\nx\n#endif\n")
    assert lines.extent(text, 0) == 5
    text = lines.code("/* arm64\n * more */\nstatic int arm64(int a,\n    int b)\n{\n    f(');', \"}\");\n}\nint c;")
    assert text[:2] == ["", ""] and lines.extent(text, 2) == 5 and lines.extent(text, 7) == 1
    assert lines.extent(["X(a, (b),", '  "(")', "X(c)"], 0) == 2
