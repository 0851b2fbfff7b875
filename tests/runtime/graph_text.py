"""The statements of a graph's code, so that two prints of one graph are equal and those of two graphs are not.

Left out is what is not of the graph: comments, layout, classes around the function, the annotations of the values, and
"x = y = None", which frees values behind their last use.
"""

import ast


class _Plain(ast.NodeTransformer):
    def visit_AnnAssign(self, node):
        return node.value and ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Assign(self, node):
        frees = isinstance(node.value, ast.Constant) and node.value.value is None
        return None if frees else node

    def visit_arg(self, node):
        node.annotation = None
        return node


class _Renamed(ast.NodeTransformer):
    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node):
        node.arg = self.names.get(node.arg, node.arg)
        return node


def _forward(text):
    [function] = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return function


def _lines(function):
    head = f"{function.name}({ast.unparse(function.args)})"
    return [head, *(ast.unparse(ast.fix_missing_locations(statement)) for statement in function.body)]


def statements(text):
    """The function's name with its inputs, then its statements."""
    return _lines(_Plain().visit(_forward(text)))


def statements_with_numbered_inputs(text):
    """The same where the inputs have other names: by their position, without the statements that name one anew."""
    function = _Plain().visit(_forward(text))
    names = {arg.arg: f"input_{number}" for number, arg in enumerate(function.args.args)}
    body = []
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
            if statement.value.id in names:
                names[statement.targets[0].id] = names[statement.value.id]
                continue
        body.append(statement)
    function.body = body
    return _lines(_Renamed(names).visit(function))


def shapes(text):
    """{value: type and sizes} where its annotation has them: f32[4, 16]. Strides and devices follow in some prints."""
    function = _forward(text)
    annotated = [(node.target.id, node.annotation) for node in ast.walk(function) if isinstance(node, ast.AnnAssign)]
    annotated += [(arg.arg, arg.annotation) for arg in function.args.args]
    return {name: note.value.partition("]")[0] + "]" for name, note in annotated if isinstance(note, ast.Constant)}
