"""A network that tags the words of a sentence is deployed once for sentences of any length, and a C program (any_size.c) runs it.

    python examples/any_size.py [--folder any_size]

The program's tags are compared with PyTorch's. A sentence that is too long gets the library's message.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python")]

import sol  # noqa: E402

WORDS, TAGS, LONGEST = 1000, 7, 64


class Tagger(nn.Module):
    """Scores of the tags of each word."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.lstm = nn.LSTM(32, 24, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(48, TAGS)

    def forward(self, sentence):
        return self.tags(self.lstm(self.words(sentence))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", default="any_size", help="for the library and the program")
    folder = Path(parser.parse_args().folder)
    torch.manual_seed(0)
    model = Tagger().eval()
    steps = sol.dim("steps", max=LONGEST)
    keys = {"path": folder, "lib_name": "libtagger", "func_name": "tagger"}
    sol.deploy(model, "static_lib", keys, sol.input([1, steps], dtype=torch.int64))
    program = folder / "any_size"
    source = Path(__file__).with_suffix(".c")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-O2", f"-I{folder}", source, folder / "libtagger.a", "-lm", "-pthread"]
    subprocess.run([*command, "-o", program], check=True)

    sentences = [torch.randint(WORDS, (1, n)) for n in (5, 1, 17, LONGEST, 2, LONGEST + 1)]
    lines = "".join(" ".join(map(str, s[0].tolist())) + "\n" for s in sentences)
    printed = subprocess.run([program.resolve()], input=lines, text=True, capture_output=True, check=True).stdout
    for sentence, line in zip(sentences, printed.splitlines(), strict=True):
        with torch.no_grad():
            expected = " ".join(map(str, model(sentence).argmax(-1)[0].tolist()))
        said = "the same tags as PyTorch" if line == expected else line
        print(f"{sentence.shape[1]} words: {said}")


if __name__ == "__main__":
    main()
