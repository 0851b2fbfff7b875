import dataclasses
import traceback
import typing

from .utils import graph_break_reasons


@dataclasses.dataclass
class GraphCompileReason:
    reason: str
    user_stack: typing.List[traceback.FrameSummary]
    graph_break: bool = True

    def __post_init__(self):
        if self.graph_break:
            graph_break_reasons.append(self)
