"""Holds objects of every kind in `objects`, and says as JSON what a reader from outside has to find.

value_holder.py           stands still
value_holder.py changing  changes them all the time, in a way that any moment can be told from a
                          mixture of two: ints count up from one item to the next
"""
import collections
import dataclasses
import enum
import json
import struct
import sys
import time
import traceback
import types
import typing

Point = collections.namedtuple("Point", "x y")


class Pair(typing.NamedTuple):
    first: int
    second: str = "b"


class PointWithMore(Point):  # has a __dict__ after a body of variable size
    pass


@dataclasses.dataclass
class Plain:
    name: str
    count: int = 3
    share: float = 0.25


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: typing.Optional[str] = None


class Slotted:
    __slots__ = ("zeta", "alpha", "unset")

    def __init__(self):
        self.zeta, self.alpha = 1, "a"


class SlottedMore(Slotted):
    __slots__ = ("middle",)

    def __init__(self):
        super().__init__()
        self.middle = [1]


class SlottedAndDict(SlottedMore):
    def __init__(self):
        super().__init__()
        self.free = 2.5


class Hidden(Slotted):
    __slots__ = ("alpha",)  # hides the one it inherits

    def __init__(self):
        self.zeta, self.alpha = 1, "inner"


Many = dataclasses.make_dataclass("Many", [(f"field_{i:03d}", int, i) for i in range(120)])


class Problem(ValueError):
    def __init__(self):
        super().__init__("bad")
        self.extra = "more"


class OwnDict(dict):
    pass


class OwnList(list):
    pass


class OwnInt(int):
    pass


class OwnStr(str):
    pass


class OwnDeque(collections.deque):
    pass


class Color(enum.IntEnum):
    RED = 7


class Grown:
    """Attributes that other instances of the class do not have."""

    def __init__(self, n):
        for i in range(n):
            setattr(self, f"a{i}", i)


class Deleted:
    def __init__(self):
        self.a, self.b, self.c = 1, 2, 3
        del self.b


def opened(instance):
    vars(instance)  # someone looked: CPython makes a real dict of it
    return instance


def replaced(instance):
    instance.__dict__ = {"only": "this"}
    return instance


def with_attribute(instance, **values):
    for name, value in values.items():
        setattr(instance, name, value)
    return instance


def deque_across_blocks():
    d = collections.deque(maxlen=200)
    d.extend(range(500))
    for _ in range(90):
        d.popleft()
    d.rotate(7)
    return d


def set_with_deleted():
    s = set(range(100))
    for i in range(0, 100, 3):
        s.discard(i)
    return s


def dict_with_deleted():
    d = {i: str(i) for i in range(50)}
    for i in range(0, 50, 2):
        del d[i]
    d["text"] = 1.5
    d[(1, "t")] = None
    return d


def cyclic_list():
    items = [1]
    items.append(items)
    return items


def cyclic_dict():
    d = {"a": 1}
    d["self"] = d
    return d


objects = {
    "none": None,
    "true": True,
    "false": False,
    "ints": [0, 1, -1, 255, 2**30 - 1, 2**30, -(2**30), 2**60 - 1, 2**60, 2**63 - 1, -(2**63) + 1],
    "too_long_ints": [2**63, 2**64, -(2**63), 2**200],
    "floats": [0.0, -0.0, 1.5, -2.25e-300, float("inf"), float("-inf"), float("nan"), 1e308],
    "strings": ["", "plain", "caf\u00e9", "\u20ac", "\U0001f600", "broken\udcff", "x" * 5000, "\n\x1b"],
    "own_strings": [OwnStr(), OwnStr("plain"), OwnStr("\u20ac" * 300), OwnStr("caf\u00e9")],
    "bytes": b"abc",
    "empty": [[], (), {}, set(), frozenset(), collections.deque()],
    "list": [1, "two", 3.0, None, [4, [5]]],
    "long_list": list(range(3000)),
    "shrunk_list": (lambda x: [x.pop() for _ in range(90)] and x)(list(range(100))),
    "tuple": (1, ("a", None)),
    "deque": collections.deque([1, "a", None]),
    "deque_bounded": collections.deque(range(500), maxlen=64),
    "deque_across_blocks": deque_across_blocks(),
    "own_deque": OwnDeque(["d"]),
    "set": {1, "a", (2, 3)},
    "frozenset": frozenset({"only"}),
    "set_large": set(range(5000)),
    "set_with_deleted": set_with_deleted(),
    "dict": {"a": 1, "b": [2]},
    "dict_any_keys": {1: "int", "s": "str", (1, 2): "tuple", None: "none", 2.5: "float"},
    "dict_with_deleted": dict_with_deleted(),
    "dict_large": {f"key {i}": i for i in range(3000)},
    "ordered": collections.OrderedDict(z=1, a=2),
    "defaultdict": collections.defaultdict(collections.Counter, {"k": collections.Counter("aab")}),
    "counter": collections.Counter("abracadabra"),
    "own_dict": with_attribute(OwnDict(a=1), extra="e"),
    "own_list": with_attribute(OwnList([1]), extra="e"),
    "own_int": with_attribute(OwnInt(5), extra="e"),
    "enum": Color.RED,
    "namedtuple": Point(1, "y"),
    "typed_namedtuple": Pair(4),
    "namedtuple_with_dict": with_attribute(PointWithMore(1, 2), extra="e"),
    "namedtuple_empty_dict": PointWithMore(3, 4),
    "dataclass": Plain("n"),
    "dataclass_opened": opened(Plain("o")),
    "dataclass_replaced": replaced(Plain("r")),
    "frozen": Frozen("f"),
    "slots": Slotted(),
    "slots_inherited": SlottedMore(),
    "slots_and_dict": SlottedAndDict(),
    "slots_and_dict_opened": opened(SlottedAndDict()),
    "slots_hidden": Hidden(),
    "many_fields": Many(),
    "many_fields_opened": opened(Many()),
    "grown": [Grown(2), Grown(20), Grown(3), opened(Grown(5)), Grown(40)],
    "extra_attribute": with_attribute(Plain("e"), extra=1),
    "deleted_attribute": Deleted(),
    "exception": Problem(),
    "namespace": types.SimpleNamespace(a=1, b=types.SimpleNamespace(c=2)),
    "frame_summaries": list(traceback.extract_stack()),
    "cyclic_list": cyclic_list(),
    "cyclic_dict": cyclic_dict(),
}
if sys.version_info >= (3, 10):
    Slim = dataclasses.make_dataclass("Slim", [("zeta", int, 1), ("alpha", int, 2)], slots=True)
    objects["dataclass_slots"] = Slim()


def slots_of(value):
    found = {}
    for cls in type(value).__mro__:
        for name, member in vars(cls).items():
            if type(member) is types.MemberDescriptorType and name not in found:
                if cls.__flags__ & (1 << 9):  # a class made by Python code
                    try:
                        found[name] = member.__get__(value)
                    except AttributeError:
                        pass
    return found


def describe(value, depth=0):
    found = {"type": type(value).__name__}
    if type(value).__flags__ & (1 << 9) == 0 or type(value).__module__ == "collections":
        found["type"] = tp_name(type(value))
    if value is None:
        found["none"] = 1
    elif isinstance(value, bool):
        found["bool"] = int(value)
    elif isinstance(value, int):
        if abs(value) < 2**63:
            found["int"] = int(value)
        else:
            found["nothing"] = 1
    elif isinstance(value, float):
        found["float"] = struct.unpack("<Q", struct.pack("<d", value))[0]
    elif isinstance(value, str):
        found["str"] = value.encode("utf-8", "surrogatepass").hex()
    elif depth < 6:
        if isinstance(value, (list, tuple, collections.deque, set, frozenset)):
            found["items"] = [describe(item, depth + 1) for item in value]
        if isinstance(value, dict):
            found["pairs"] = [
                [describe(k, depth + 1), describe(v, depth + 1)] for k, v in value.items()
            ]
        attributes = slots_of(value)
        for name in getattr(type(value), "_fields", ()):
            attributes[name] = getattr(value, name)
        attributes.update(getattr(value, "__dict__", {}) if "dict" not in found["type"] else {})
        if isinstance(value, OwnDict):
            attributes.update(vars(value))
        found["attributes"] = {k: describe(v, depth + 1) for k, v in attributes.items()}
    return found


def tp_name(cls):
    module = {"deque": "collections.", "defaultdict": "collections.", "OrderedDict": "collections."}
    return module.get(cls.__name__, "") + (
        "types.SimpleNamespace" if cls is types.SimpleNamespace else cls.__name__
    )


def change():
    ints = list(range(200_000))  # kept: a count read late is still the object it was
    objects.clear()
    objects["deque"] = collections.deque(maxlen=300)
    objects["list"] = []
    objects["dict"] = {}
    print("ready", flush=True)
    n = 0
    while True:
        n = n + 1 if n + 1 < len(ints) else 0
        if n == 0:
            objects["deque"].clear()
        objects["deque"].append(ints[n])
        items = objects["list"]
        if len(items) > 500 or n == 0:
            items.clear()
        items.append(ints[n])
        d = objects["dict"]
        if len(d) > 500 or n == 0:
            d.clear()
        d[ints[n]] = None
        if n % 20 == 0:
            time.sleep(0.001)  # a reader finds moments of rest, and moments of none


if sys.argv[1:] == ["changing"]:
    change()
print("ready " + json.dumps({name: describe(value) for name, value in objects.items()}), flush=True)
time.sleep(3600)
