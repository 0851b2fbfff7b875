"""A validator for the part of JSON Schema (draft 2020-12) that docs/reference/*.schema.json use."""

import json
import re

import support

COMPILES = support.REPO / "docs" / "reference" / "compiles.schema.json"
OPERATORS = COMPILES.with_name("operators.schema.json")
TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}
ANNOTATIONS = {"$schema", "$defs", "title", "description"}
KEYWORDS = {
    "$ref", "type", "const", "enum", "minimum", "pattern", "items", "properties", "required", "additionalProperties"
}


def problems(value, schema, root=None, at="$"):
    """Every way in which `value` is not as the schema says. Members of an object with "properties" that the
    schema does not list are problems too: a new member has to be documented."""
    root = schema if root is None else root
    unknown = set(schema) - KEYWORDS - ANNOTATIONS
    if unknown:
        raise ValueError(f"{at}: the validator does not know {sorted(unknown)}")
    if "$ref" in schema:
        yield from problems(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(TYPES[name](value) for name in types):
        yield f"{at}: {value!r:.60} is not of type {' or '.join(types)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r:.60} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r:.60} is not one of {schema['enum']}"
    if "minimum" in schema and TYPES["number"](value) and value < schema["minimum"]:
        yield f"{at}: {value!r} is less than {schema['minimum']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{at}: {value!r:.60} does not match {schema['pattern']}"
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from problems(item, schema["items"], root, f"{at}[{number}]")
    if isinstance(value, dict):
        yield from member_problems(value, schema, root, at)


def member_problems(value, schema, root, at):
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield f"{at}: {name} is missing"
    for name, member in value.items():
        if name in properties:
            yield from problems(member, properties[name], root, f"{at}.{name}")
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from problems(member, schema["additionalProperties"], root, f"{at}.{name}")
        elif properties and not schema.get("additionalProperties"):
            yield f"{at}: {name} is not in the schema"


def compiles_problems(document):
    return list(problems(document, json.loads(COMPILES.read_text(encoding="utf-8"))))


def operators_problems(document):
    return list(problems(document, json.loads(OPERATORS.read_text(encoding="utf-8"))))
