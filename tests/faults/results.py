"""What the fault suites print: one row per target, and a closing line that scripts/check.py reads."""

from dataclasses import dataclass, field


@dataclass
class Row:
    """`harmed`: a target that did not behave as without a profiler. `failed`: all else that went wrong."""

    name: str
    runs: int = 0
    harmed: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    note: str = ""
    seconds: float = 0.0

    def harm(self, text):
        self.harmed.append(text)

    def fail(self, text):
        self.failed.append(text)

    @property
    def good(self):
        return not self.harmed and not self.failed

    def __str__(self):
        count = f"{self.name:34} {self.runs:6} {len(self.harmed):7} {len(self.failed):7} {self.seconds:8.1f}"
        return f"{count}  {self.note}".rstrip()

    def details(self):
        return [f"harmed: {text}" for text in self.harmed] + [
            f"failed: {text}" for text in self.failed
        ]


HEADER = f"{'target':34} {'runs':>6} {'harmed':>7} {'failed':>7} {'seconds':>8}"


def closing(rows, skipped=()):
    good = sum(row.good for row in rows)
    text = f"{good} passed, {len(rows) - good} failed"
    return f"{text}, {len(skipped)} skipped" if skipped else text
