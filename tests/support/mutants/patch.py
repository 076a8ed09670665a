"""Puts a changed module into the one that is imported, without importing anything again.

Others hold its functions by reference (`from … import`), so a function keeps its identity and gets other code; what a
module computes when it is imported (tables, constants) is computed again and replaced wherever it is known by that name.
"""

import ast
import sys
import types
from collections.abc import Iterator
from typing import Any


class CannotPatchError(Exception):
    """The change alters what cannot be replaced, such as the variables that a closure holds."""


def put(module: types.ModuleType, tree: ast.Module, place: str) -> None:
    """`tree` is the changed one; `place` the function or class that the change is in, "" for the module itself."""
    ast.fix_missing_locations(tree)
    file = str(module.__file__)
    nodes = _nodes(tree, place)
    definitions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    try:
        if definitions:
            classes = nodes[: nodes.index(definitions[0])]
            _put_function(module, file, tree, [node.name for node in classes], definitions[0])
        elif nodes:
            _put_class_values(module, file, nodes)
        else:
            _put_values(module, file, tree)
    except Exception as error:  # a module that cannot be imported is no mutant
        raise CannotPatchError(str(error)) from error


def _nodes(tree: ast.Module, place: str) -> list[Any]:
    found: list[Any] = []
    body: list[ast.stmt] = tree.body
    for name in place.split(".") if place else ():
        node = next(
            one for one in _definitions(body) if one.name == name and not (found and found[-1] is one)
        )
        found.append(node)
        body = node.body
    return found


def _definitions(body: list[ast.stmt]) -> Iterator[Any]:
    for statement in body:
        for node in (
            [statement] if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ast.walk(statement)
        ):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node


def _put_function(
    module: types.ModuleType, file: str, tree: ast.Module, classes: list[str], node: ast.FunctionDef
) -> None:
    """That of the module or the class; a function inside it comes along."""
    holder: Any = module
    for name in classes:
        holder = getattr(holder, name)
    code = _code(compile(tree, file, "exec"), node)
    for function in _functions(vars(holder).get(node.name)):
        if function.__code__.co_firstlineno == code.co_firstlineno:
            function.__code__ = code
            fresh = _made(module, file, node)
            function.__defaults__, function.__kwdefaults__ = fresh.__defaults__, fresh.__kwdefaults__


def _code(code: types.CodeType, node: ast.FunctionDef) -> types.CodeType:
    first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    pending = [code]
    while pending:
        for inner in pending.pop().co_consts:
            if isinstance(inner, types.CodeType):
                if inner.co_name == node.name and inner.co_firstlineno == first:
                    return inner
                pending.append(inner)
    raise CannotPatchError(f"no code of {node.name}")


def _functions(found: Any) -> Iterator[types.FunctionType]:
    """What a decorator has wrapped, too."""
    seen: set[int] = set()
    pending = [found]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, types.FunctionType):
            yield one
        pending += [getattr(one, name, None) for name in ("__wrapped__", "__func__", "fget", "fset", "func")]


def _made(module: types.ModuleType, file: str, node: ast.FunctionDef) -> types.FunctionType:
    """The function anew, for its defaults."""
    bare = ast.FunctionDef(**{**{name: getattr(node, name) for name in node._fields}, "decorator_list": []})
    space = dict(vars(module))
    tree = ast.fix_missing_locations(ast.Module(body=[ast.copy_location(bare, node)], type_ignores=[]))
    exec(compile(tree, file, "exec"), space)
    made = space[node.name]
    assert isinstance(made, types.FunctionType)
    return made


def _put_class_values(module: types.ModuleType, file: str, nodes: list[ast.ClassDef]) -> None:
    """Constants and the defaults of fields; the class stays the same one."""
    holder: Any = module
    for node in nodes:
        holder = getattr(holder, node.name)
    body = [one for one in nodes[-1].body if isinstance(one, ast.Assign | ast.AnnAssign)]
    space = dict(vars(module)) | dict(vars(holder))
    for one in body:
        if one.value is None:
            continue
        targets = one.targets if isinstance(one, ast.Assign) else [one.target]
        text = ast.fix_missing_locations(ast.Expression(one.value))
        value = eval(compile(text, file, "eval"), space)  # noqa: S307 - our own source
        for target in targets:
            if isinstance(target, ast.Name):
                _put_class_value(holder, target.id, value)


def _put_class_value(holder: Any, name: str, value: Any) -> None:
    made = vars(holder).get("__init__")
    defaults = getattr(made, "__kwdefaults__", None) or {}
    if name in defaults and _is_plain(value):
        made.__kwdefaults__ = defaults | {name: value}
    if name in vars(holder) and _is_plain(value) and _is_plain(vars(holder)[name]):
        setattr(holder, name, value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | tuple | frozenset | dict | list | type(None))


def _put_values(module: types.ModuleType, file: str, tree: ast.Module) -> None:
    body: list[ast.stmt] = [
        one for one in tree.body if isinstance(one, ast.Assign | ast.AnnAssign | ast.If | ast.For)
    ]
    space = dict(vars(module))
    exec(compile(ast.Module(body=body, type_ignores=[]), file, "exec"), space)
    for name, value in space.items():
        old = vars(module).get(name)
        if name.startswith("__") or value is old:
            continue
        for other in list(sys.modules.values()):
            known = getattr(other, "__dict__", {})
            if known.get(name) is old or (other is module and name in known):
                known[name] = value
