"""Look-alikes of the objects torch keeps of what it generated, for any CPython without torch.

usage: generated_lookalike.py FOLDER [forged]

Modules and classes of torch's names, holding what torch 2.13 holds. Prints "ready" and a JSON text of
what there is to find. With `forged` the same places hold what must not be believed. Lines on stdin
are executed; "ok" is printed after each.
"""

import collections
import ctypes
import dataclasses
import dis
import functools
import gc
import importlib.util
import io
import json
import marshal
import operator
import sys
import threading  # noqa: F401 (for the lines that it executes)
import time
import types
import weakref

KEPT = []  # what only C++ would hold
HELD = []  # addresses of what has one more reference, as from C++
FINALIZERS = []


def hold(thing):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    HELD.append(id(thing))


def release_all():
    while FINALIZERS:
        FINALIZERS.pop().detach()
    while HELD:
        ctypes.pythonapi.Py_DecRef(ctypes.cast(HELD.pop(), ctypes.py_object))


class ExactWeakKeyDictionary:
    def __init__(self):
        self.values = {}
        self.refs = {}

    def __setitem__(self, key, value):
        self.refs[id(key)] = weakref.ref(key)
        self.values[id(key)] = value
        KEPT.append(key)


class CleanupManager(ExactWeakKeyDictionary):
    instance = None


CleanupManager.instance = CleanupManager()


@dataclasses.dataclass
class CleanupHook:
    scope: dict
    name: str


@dataclasses.dataclass
class DictCompileId:  # as in 2.9
    frame_id: object
    frame_compile_id: object
    compiled_autograd_id: object = None


class TupleCompileId(collections.namedtuple("CompileId", "frame_id frame_compile_id")):  # as in 2.6
    pass


class SlotCompileId:  # as in 2.13
    __slots__ = ("compiled_autograd_id", "frame_compile_id", "frame_id")

    def __init__(self, frame_id, frame_compile_id, compiled_autograd_id=None):
        self.frame_id = frame_id
        self.frame_compile_id = frame_compile_id
        self.compiled_autograd_id = compiled_autograd_id


for kind in (DictCompileId, TupleCompileId, SlotCompileId):
    kind.__name__ = "CompileId"


class GraphModule:
    def __init__(self, code, compile_id=None, graph=None):
        if code is not None:
            self._code = code
        self._graph = graph
        self.meta = {"dynamo_compile_id": compile_id} if compile_id is not None else {}


class Node:  # as in torch 2.6: all attributes are the instance's
    def __init__(self, op, name, target, args=(), kwargs=None, meta=None):
        self.op, self.name, self.target = op, name, target
        self._args, self._kwargs = args, kwargs or {}
        self.meta = meta or {}
        self._next = self


class Graph:
    def __init__(self, nodes):
        self._root = Node("root", "", "")
        for node, following in zip([self._root, *nodes], [*nodes, self._root]):
            node._next = following


TensorMetadata = collections.namedtuple("TensorMetadata", "shape dtype requires_grad stride")


def graph_of(number):
    """What fx_nodes.h makes of it is in test_generated.py."""
    x = Node("placeholder", "x", "x", meta={"tensor_meta": TensorMetadata((2, number), "d", False, (number, 1))})
    meta = {
        "stack_trace": f'  File "a.py", line 1, in g\n    g()\n  File "b.py", line {number}, in f\n    x + 1\n',
        "nn_module_stack": {"m": ("L['self']", int), "n": ("L['self'].layer", int)},
        "seq_nr": number,
    }
    add = Node("call_function", "add", operator.add, (x, number), meta=meta)
    sub = Node("call_function", "sub", operator.isub, (add, -1.5), meta=meta)
    part = Node("call_function", "part", operator.getitem, (sub, (slice(None, 2), Ellipsis, None)))
    call = Node("call_function", "call", branches, ([part, (part,)], True), {"d": {"k": "it's"}})
    view = Node("call_method", "view", "view", (call, 10**6), {"dim": 0.1})
    layer = Node("call_module", "layer", "layers.0", (view,))
    return Graph([x, add, sub, part, call, view, layer, Node("output", "output", "output", ((layer,),))])


class CompiledFxGraph:
    def __init__(self, key, source, backward):
        self.cache_key = key
        self.source_code = source
        self.fx_kwargs = {"is_backward": backward, "is_inference": False}
        self.inductor_post_grad_graph_str = "post grad of " + key
        self.runnable_graph_str = ""


class FunctionMeta(type):
    pass


class GuardManagerWrapper:
    def __init__(self, code, compile_id, parts):
        self.code_parts = parts
        self.cache_entry = _CacheEntry((self, code, compile_id))


class _CacheEntry:
    __slots__ = ("pointer",)  # where pybind11 has the address of the C++ object

    def __init__(self, pointer):
        self.pointer = pointer


class CheckFunctionManager:
    def __init__(self, manager):
        self.guard_manager = manager

    def invalidate(self, obj_str):
        pass


class ContinueExecutionCache:
    cache = ExactWeakKeyDictionary()


class EvalCacheLoader:
    def __init__(self):
        self.eval_cache = {}


class PyCodeCache:
    modules = []


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


ORIGINALS = ExactWeakKeyDictionary()
LOADER = EvalCacheLoader()
module("torch")
module("torch._dynamo.utils", orig_code_map=ORIGINALS, CleanupManager=CleanupManager)
module("torch._dynamo.guards", GuardManagerWrapper=GuardManagerWrapper)
module("torch._dynamo.resume_execution", ContinueExecutionCache=ContinueExecutionCache)
module("torch.fx.graph_module", _loader=LOADER)
module("torch._inductor.codecache", PyCodeCache=PyCodeCache)


# ---- functions to be "transformed": of many kinds of instruction ---------------------------------


def branches(a, b=3, *rest, key="x", **more):
    total = 0
    for i in range(a):
        if i % 2 and key is not None:
            total += b
        elif not rest:
            total -= 1
        else:
            continue
    if a in {1, 2, (3, 4)}:  # constants of every kind
        more["big"] = (2**100, -(2**70), 2**31, 3j, b"\0x", "é\ud800", ..., None, True, -0.0, 1e999)
    while total > 1000:
        total //= 2
    return {"t": total, **more}, [*rest], f"{total!r} {key:>3}"


def closures(a):
    def inner(b):
        nonlocal a
        a += b
        return [a * c for c in (1, 2, 3)], lambda: (a, b)

    return inner


class Base:
    def method(self, x):
        return x


class Derived(Base):
    def method(self, x):
        try:
            with open("/dev/null") as null:
                assert null
                return super().method(x) + self.missing
        except (AttributeError, TypeError) as error:
            return str(error)
        finally:
            del x


def wide():
    """More than 256 constants and names: EXTENDED_ARG."""
    lines = [f"    v{i} = {i}.5 + name{i}" for i in range(300)]
    scope = {f"name{i}": i for i in range(300)}
    exec("def widest():\n" + "\n".join(lines) + "\n    return v299", scope)
    return scope["widest"]


def functions():
    inner = closures(1)
    found = [branches, closures, inner, Derived.method, wide()]
    for _ in range(100):  # specialized, as code that runs is
        branches(6, 2, 1, extra=1)
        inner(1)
        Derived().method(2)
        found[-1]()
    return [f.__code__ for f in found]


def instructions(code):
    rows = []
    for i in dis.get_instructions(code):
        meaning = None
        if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
            meaning = f"to {i.argval}"
        elif i.opcode in dis.hasname or i.opcode in dis.haslocal or i.opcode in dis.hasfree:
            meaning = i.argval if isinstance(i.argval, str) else ", ".join(i.argval)
        rows.append([i.offset, i.opname, i.arg or 0, meaning])
    return rows


def check(path):
    """Whether a .pyc file has the transformed code of a compile, and that of a user's function."""
    with open(path, "rb") as file:
        data = file.read()
    code = marshal.loads(data[16:])
    ours = [*CleanupManager.instance.refs.values(), *ORIGINALS.refs.values()]
    known = [ref() for ref in ours] + list(ORIGINALS.values.values())
    known += [code for codes in ContinueExecutionCache.cache.values.values() for code in codes.values()]
    same = any(
        code == one
        and code.co_names == one.co_names
        and code.co_code == one.co_code
        and code.co_filename == one.co_filename
        and list(code.co_lines()) == list(one.co_lines())
        for one in known
    )
    magic = data[:4] == importlib.util.MAGIC_NUMBER
    dis.dis(code, file=io.StringIO())
    print("same" if same and magic else f"differs {code} {magic}", flush=True)


# ---- a compile -----------------------------------------------------------------------------------

SCOPE = {"__name__": "user"}


def resume_of(code, name):
    function = types.FunctionType((lambda x: x + 1).__code__.replace(co_name=name), SCOPE)
    ContinueExecutionCache.cache[code] = {(138, ()): function.__code__}
    return function


def compiled_function(graph, forward, backward):
    class CompiledFunction(metaclass=FunctionMeta):
        compiled_fw = forward
        compiled_bw = functools.partial(lambda g, args: g, backward)

        @classmethod
        def apply(cls):
            pass

    def call(args):
        return CompiledFunction.apply(args), graph, joint_graph_str

    joint_graph_str = "the joint graph"

    def entry(*args):
        return call(args)

    entry.noise = [{"a": (1, 2.5, None)}, entry]  # cyclic
    return entry


def make_compile(folder, number, kind, code, with_graph=True):
    """A transformed code with all that belongs to it."""
    compile_id = kind(number, 0)
    name = f"__compiled_fn_{number}_0123"
    resume = f"__resume_at_138_{number}"
    transformed = code.replace(co_names=code.co_names + (name, resume))
    graphs = []
    for direction in ("forward", "backward"):
        key = f"c{number}{direction}"
        path = f"{folder}/{key}.py"
        source = f"# AOT ID: ['{number}_{direction}']\nprint({number})\n"
        with open(path, "w") as out:
            out.write(source)
        PyCodeCache.modules.append(module(f"wrapper.{key}", __file__=path))
        graphs.append(CompiledFxGraph(key, source, direction == "backward"))
    text = f"def forward(self, x{number}): return x{number}"
    LOADER.eval_cache[f"<eval_with_key>.{number}"] = text
    LOADER.eval_cache[f"<eval_with_key>.{number}0"] = text[:-1] + str(number)  # equal, not the same
    SCOPE[name] = compiled_function(GraphModule(text, compile_id, graph_of(number) if with_graph else None), *graphs)
    SCOPE[resume] = resume_of(code, f"torch_dynamo_resume_in_{code.co_name}_at_7")
    ORIGINALS[transformed] = code
    CleanupManager.instance[transformed] = [
        CleanupHook(SCOPE, "__builtins_dict___1"),
        CleanupHook(SCOPE, name),
        CleanupHook(SCOPE, resume),
    ]
    guards = GuardManagerWrapper(transformed, compile_id, [f"L['x'] == {number}", "___check()"])
    # As torch keeps them in C++; those of ___check() differ, so none is known to be whose.
    own = [f"L['x'] == {number}      # line of {number}  # user.py:{number} in f"]
    for texts in (own, [f"___check()  # user.py:{number} in f"], ["L['x'] == 0"], [], ["#"]):
        hold(texts)
    if number % 2:
        check = CheckFunctionManager(guards)
        finalizer = weakref.finalize(kind, functools.partial(check.invalidate, obj_str="x"))
        FINALIZERS.append(finalizer)
    else:
        # Held from C, as torch holds them: only the garbage collector's lists lead there.
        hold(guards)
    return {"id": f"{number}/0", "name": code.co_name, "instructions": instructions(transformed)}


# ---- forged ---------------------------------------------------------------------------------------


def forge(folder, rows):
    gc.disable()  # it would believe the forged length
    size = object.__basicsize__  # of a PyObject: where ob_size lies
    huge = ["L['x'] == 1"]
    KEPT.append(huge)
    ctypes.c_ssize_t.from_address(id(huge) + size).value = 1 << 60
    code = branches.__code__
    for parts in (huge, "a string", {1: 2}, [1, 2, 3], [b"bytes", "x\x1b[31m\ud800"]):
        manager = GuardManagerWrapper(code, SlotCompileId("0", 0), parts)
        KEPT.append(manager)
    KEPT[-1].cache_entry.pointer = KEPT[-1]
    cycle = {}
    cycle["values"] = cycle
    deep = []
    for _ in range(5000):
        deep = [deep, cycle]
    wide_tree = [[[[] for _ in range(40)] for _ in range(40)] for _ in range(40)]

    def graph():
        return deep, wide_tree, cycle, module_one, module_two

    tangle = []
    tangle.append((tangle, tangle, {"k": tangle}))
    nodes = [
        Node("call_function", "a", operator.add, (tangle, 1), {"k": tangle}, {"stack_trace": 'File "x', "seq_nr": -1}),
        Node("call_function", "../\x1b[31m\n" * 9, 17, (b"", 1 << 200, object()), {1: 2}, {"nn_module_stack": {}}),
        Node("call_method", "b", "m" * 100_000, None, None, {"tensor_meta": TensorMetadata(7, 7, 7, 7)}),
        Node("output", "o", "o", (), None, {"stack_trace": 'File "x", line y, in z', "seq_nr": 1 << 80}),
    ]
    long = Graph([*nodes, *(Node("call_function", f"n{i}", operator.add, (tangle, tangle)) for i in range(5_000))])
    endless = Graph([Node("call_function", "d", operator.add, (1, 2), meta={"seq_nr": 1})])
    endless._root._next._next = endless._root._next  # never back to the root
    broken = Graph([Node("call_function", "c", operator.add, (1, 2))])
    broken._root._next._next = "no node"
    module_one = GraphModule("code of 7/7", SlotCompileId(7, 7), long)
    module_two = GraphModule(12345, "0/0", broken)
    module_three = GraphModule("code of 8/8", SlotCompileId(8, 8), endless)
    graph.more = module_three  # two compiles in one graph: neither is certain
    name = "__compiled_fn_9/../../../escape_\x1b[31m"
    SCOPE[name] = graph
    hostile = code.replace(co_name="../../etc/\x1b]0;x\x07cron.d/evil")
    ORIGINALS[hostile] = code
    CleanupManager.instance[hostile] = [CleanupHook(SCOPE, name), CleanupHook(cycle, "x"), None, 7]
    # In one constant a list, a tuple that contains itself, and a code that has itself as a constant.
    pair = ([], 0)
    cyclic = (lambda: None).__code__.replace(co_name="cyclic", co_consts=(None, pair))
    assert cyclic.co_consts[1] is pair
    KEPT.extend([pair, cyclic])
    items = tuple.__basicsize__
    ctypes.py_object.from_address(id(pair) + items + 8).value = pair
    ctypes.py_object.from_address(id(cyclic.co_consts) + items).value = cyclic
    forged_size = (lambda: 1).__code__.replace(co_name="forged_size", co_names=("a", "b"))
    names = forged_size.co_names
    KEPT.append(names)
    ctypes.c_ssize_t.from_address(id(names) + size).value = 1 << 60
    ORIGINALS[cyclic] = ORIGINALS[forged_size] = branches.__code__
    ORIGINALS.values[12345678] = code  # no weak reference to it
    ORIGINALS.values[1 << 200] = code
    ORIGINALS.refs[id(rows)] = weakref.ref(code)  # to another object
    ORIGINALS.values[id(rows)] = code
    LOADER.eval_cache["../../../../etc/passwd"] = "harmless"
    LOADER.eval_cache["<eval_with_key>.\n\x00/../x"] = "also"
    LOADER.eval_cache[b"bytes"] = "no str key"
    LOADER.eval_cache["<eval_with_key>.big"] = "x" * (9 << 20)
    LOADER.eval_cache["<eval_with_key>.none"] = None
    for path in ("/etc/shadow", "../../../etc/shadow.py", "", "/\x00.py", "x" * 9000 + ".py", None):
        PyCodeCache.modules.append(module(f"forged{path!r}", __file__=path))
    PyCodeCache.modules.append("no module")
    ContinueExecutionCache.cache[code] = {1: code, 2: None, 3: cycle}


def churn(folder):
    """Makes and frees compiles without end, all the while one is looked at."""
    code = branches.__code__
    for number in range(10, 1 << 30):
        sources = dict(LOADER.eval_cache)
        make_compile(folder, 10 + number % 40, SlotCompileId, code, with_graph=number % 4 == 0)
        if number % 40 == 0:
            LOADER.eval_cache = sources
            for table in (ORIGINALS, CleanupManager.instance, ContinueExecutionCache.cache):
                table.values = {}
                table.refs.clear()
            PyCodeCache.modules = PyCodeCache.modules[:10]
            KEPT.clear()
            SCOPE.clear()
            # Else the target grows, each look takes longer and finds more that is dead.
            release_all()
            gc.collect()
        time.sleep(0.02)  # so that some of 40 are unchanged while two looks are taken


def collect():
    """Has the garbage collector move objects from ring to ring without end."""
    gc.freeze()
    keep = [[number] for number in range(20_000)]
    gc.collect()
    gc.unfreeze()  # these now lie between the beginning and the end of a walk of the oldest ring
    while keep:
        gc.collect(1)
        survivors = []
        for number in range(1000):
            survivors.append([number])
            if number % 100 == 0:
                time.sleep(0.002)


def main():
    folder = sys.argv[1]
    rows = []
    kinds = (SlotCompileId, DictCompileId, TupleCompileId, SlotCompileId, SlotCompileId)
    for number, (code, kind) in enumerate(zip(functions(), kinds)):
        rows.append(make_compile(folder, number, kind, code))
    if "forged" in sys.argv:
        forge(folder, rows)
    print("ready", json.dumps(rows), flush=True)
    for line in sys.stdin:
        exec(line, globals())
        print("ok", flush=True)


main()
