"""The places of a module that can be changed, each in one way, and how its text reads before and after."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
_LOGS = ("_log", "log", "logging")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change. `place` is the function, by its name in the module, or "" where the module itself is changed."""

    module: str
    place: str
    line: int
    lines: frozenset[int]  # of what is changed; a test that runs none of them cannot notice
    before: str
    after: str
    at_import: bool  # run when the module is imported, and by no test
    number: int = 0  # among those of the same words in the same place
    apply: Callable[[], None] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        again = f" ({self.number + 1})" if self.number else ""
        return f"{self.place or 'module'}: {self.before} -> {self.after}{again}"


def mutants(module: str, tree: ast.Module) -> list[Mutant]:
    """All of a module. `apply` changes `tree` for good: once for each tree, so in a child of its own."""
    found: list[Mutant] = []
    seen: dict[tuple[str, str, str], int] = {}
    for one in _Walk(module).of(tree):
        key = (one.place, one.before, one.after)
        seen[key] = seen.get(key, -1) + 1
        found.append(Mutant(**{**vars(one), "number": seen[key]}))
    return found


class _Walk:
    def __init__(self, module: str) -> None:
        self.module = module
        self.called: set[int] = set()  # lines inside of functions

    def of(self, tree: ast.Module) -> Iterator[Mutant]:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.called = {line for one in functions for statement in one.body for line in _lines(statement)}
        for statement in tree.body:
            yield from self._statement(statement, [], tree.body)

    def _statement(self, node: ast.stmt, path: list[str], body: list[ast.stmt]) -> Iterator[Mutant]:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
                return
            case ast.FunctionDef():
                inner = [*path, node.name]
                for default in [*node.args.defaults, *(one for one in node.args.kw_defaults if one)]:
                    yield from self._expression(default, node, inner)
            case ast.ClassDef():
                if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                    return
                inner = [*path, node.name]
            case _:
                inner = path
                yield from self._removed(node, path, body)
                yield from self._returned(node, path)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "args", "decorator_list", "bases", "keywords"):
                continue
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.stmt):
                    yield from self._statement(item, inner, value)
                elif isinstance(item, ast.expr):
                    if name == "test":
                        yield from self._negated(item, node, path)
                    yield from self._expression(item, node, path)
                elif isinstance(item, ast.ExceptHandler):
                    for statement in item.body:
                        yield from self._statement(statement, path, item.body)
                elif isinstance(item, ast.match_case):
                    if item.guard is not None:
                        yield from self._negated(item.guard, item, path)
                        yield from self._expression(item.guard, node, path)
                    for statement in item.body:
                        yield from self._statement(statement, path, item.body)
                elif isinstance(item, ast.withitem):
                    yield from self._expression(item.context_expr, node, path)

    def _expression(self, node: ast.expr, of: ast.stmt, path: list[str]) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr):
            return  # words
        if isinstance(node, ast.Call) and _is_log(node):
            return
        yield from self._swapped(node, of, path)
        for name, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.keyword):
                    item = item.value  # noqa: PLW2901
                if isinstance(item, ast.comprehension):
                    yield from self._expression(item.iter, of, path)
                    for test in item.ifs:
                        yield from self._negated(test, item, path, of)
                        yield from self._expression(test, of, path)
                elif isinstance(item, ast.expr):
                    if name == "test":
                        yield from self._negated(item, node, path, of)
                    yield from self._expression(item, of, path)

    def _swapped(self, node: ast.expr, of: ast.stmt, path: list[str]) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                for number, operator in enumerate(node.ops):
                    other = _COMPARISONS[type(operator)]()
                    yield self._set(
                        node, of, path, "ops", [*node.ops[:number], other, *node.ops[number + 1 :]]
                    )
            case ast.BoolOp():
                yield self._set(node, of, path, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
            case ast.BinOp() if not _is_text(node.left) and not _is_text(node.right):
                if type(node.op) in _OPERATORS and (path or not _is_union(node)):
                    yield self._set(node, of, path, "op", _OPERATORS[type(node.op)]())
            case ast.UnaryOp(op=ast.Not()):
                yield self._set(node, of, path, "op", None)
            case ast.Constant(value=bool()):
                yield self._set(node, of, path, "value", not node.value)
            case ast.Constant(value=int() | float() as value):
                yield self._set(node, of, path, "value", value + 1)
            case ast.Name(id="any" | "all" | "min" | "max"):
                yield self._set(node, of, path, "id", _NAMES[node.id])
            case ast.Set():
                for number in range(len(node.elts)):
                    yield self._set(node, of, path, "elts", node.elts[:number] + node.elts[number + 1 :])
            case ast.Dict() if not path:
                for number in range(len(node.keys)):
                    yield self._set(node, of, path, "values", number)

    def _set(self, node: ast.expr, of: ast.stmt, path: list[str], name: str, value: object) -> Mutant:
        before = ast.unparse(node)
        old = {name: getattr(node, name) for name in node._fields}

        def apply() -> None:
            match node, name:
                case ast.UnaryOp(), "op":  # `not x` becomes `not not x`: the same truth as x
                    node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
                case ast.Dict(), "values":
                    assert isinstance(value, int)
                    node.keys = node.keys[:value] + node.keys[value + 1 :]
                    node.values = node.values[:value] + node.values[value + 1 :]
                case _:
                    setattr(node, name, value)

        apply()
        after = ast.unparse(node)
        if isinstance(node, ast.Dict) and isinstance(value, int):
            key = old["keys"][value]
            before, after = f"{ast.unparse(key)}: …" if key else "**", "removed"
        for field_name, was in old.items():
            setattr(node, field_name, was)
        return self._mutant(path, _lines(node), before, after, apply)

    def _negated(
        self, test: ast.expr, holder: ast.AST, path: list[str], of: ast.stmt | None = None
    ) -> Iterator[Mutant]:
        """What the swaps do not turn round already."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        if isinstance(test, ast.Compare) and not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            return
        turned = ast.UnaryOp(op=ast.Not(), operand=test)

        def apply() -> None:
            for name, value in ast.iter_fields(holder):
                if value is test:
                    setattr(holder, name, turned)
                elif isinstance(value, list) and test in value:
                    value[value.index(test)] = turned

        yield self._mutant(path, _lines(test), f"if {ast.unparse(test)}", f"if {ast.unparse(turned)}", apply)

    def _removed(self, node: ast.stmt, path: list[str], body: list[ast.stmt]) -> Iterator[Mutant]:
        match node:
            case ast.Expr(value=ast.Call() as call) if not _is_log(call):
                pass
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                pass
            case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
                pass
            case _:
                return

        def apply() -> None:
            body[body.index(node)] = ast.copy_location(ast.Pass(), node)

        yield self._mutant(path, _lines(node), _short(node), "removed", apply)

    def _returned(self, node: ast.stmt, path: list[str]) -> Iterator[Mutant]:
        if not isinstance(node, ast.Return) or node.value is None or isinstance(node.value, ast.Constant):
            return

        def apply() -> None:
            node.value = ast.Constant(value=None)

        yield self._mutant(path, _lines(node), _short(node), "return None", apply)

    def _mutant(
        self, path: list[str], lines: frozenset[int], before: str, after: str, apply: Callable[[], None]
    ) -> Mutant:
        return Mutant(
            module=self.module,
            place=".".join(path),
            line=min(lines),
            lines=lines,
            before=_one_line(before),
            after=_one_line(after),
            at_import=min(lines) not in self.called,
            apply=apply,
        )


def _lines(node: ast.stmt | ast.expr) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _short(node: ast.stmt) -> str:
    return ast.unparse(node).splitlines()[0]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _is_log(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in _LOGS
    )


def _is_union(node: ast.BinOp) -> bool:
    """Of types, which is never run."""
    return isinstance(node.op, ast.BitOr) and isinstance(node.right, ast.Name)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
