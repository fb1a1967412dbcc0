"""Which methods of services a module calls, as far as its source says so.

A service is reached as an attribute (`runtime.jobs`), by what a helper or a property returns
(`_waits(call)`), by an annotated or assigned variable, and by `getattr`. A name that `getattr` gets at run
time may be every string of the module, and of the operations that it handles.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.sources import tree_of

import interlock

SOURCE = Path(interlock.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Services:
    """The services of a program: their classes, by the name of the attribute that has them."""

    def __init__(self, classes: Mapping[str, type], interfaces: Mapping[str, str]) -> None:
        self.classes = classes
        self._names = {each.__name__: name for name, each in classes.items()} | dict(interfaces)

    def named_in(self, annotation: ast.AST | None) -> str | None:
        """Return the service whose class, or interface over HTTP, an annotation names."""
        if annotation is None:
            return None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value)
        words = (getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(annotation))
        return next((self._names[word] for word in words if word in self._names), None)

    def has(self, service: str, method: str) -> bool:
        """Return whether a service has an asynchronous method of this name."""
        found = inspect.unwrap(getattr(self.classes[service], method, None) or len)
        return inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)


def calls_in(path: Path, services: Services) -> set[str]:
    """Return the methods of services that a module calls, as `service.method`."""
    return {f"{service}.{method}" for service, method in _Module(path, services).calls()}


class _Module:
    def __init__(self, path: Path, services: Services) -> None:
        self._services = services
        self._tree = tree_of(path)
        self._returned = {
            node.name: service
            for node in ast.walk(self._tree)
            if isinstance(node, Function) and (service := services.named_in(node.returns))
        }
        twin = SOURCE / "api" / path.name
        trees = (self._tree, *([tree_of(twin)] if path.parent.name == "api" and twin.exists() else ()))
        self._texts = {
            node.value
            for tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    def calls(self) -> Iterator[tuple[str, str]]:
        yield from self._calls_below(self._tree, self._bound_in(self._tree, {}))

    def _calls_below(self, owner: ast.AST, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for node in ast.iter_child_nodes(owner):
            inner = self._bound_in(node, known) if isinstance(node, Function) else known
            for service, method in self._named_by(node, known):
                if self._services.has(service, method):
                    yield service, method
            yield from self._calls_below(node, inner)

    def _named_by(self, node: ast.AST, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        match node:
            case ast.Attribute(value=value, attr=name) if service := self._service(value, known):
                yield service, name
            case ast.Call(func=ast.Name(id="getattr"), args=[value, name, *_]) if service := self._service(
                value, known
            ):
                texts = [name.value] if isinstance(name, ast.Constant) else sorted(self._texts)
                yield from ((service, str(text)) for text in texts)

    def _bound_in(self, owner: ast.AST, known: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a function, or of a module, that are services."""
        bound = dict(known)
        if isinstance(owner, Function):
            given = (*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs)
            for each in given:
                bound.pop(each.arg, None)
                if service := self._services.named_in(each.annotation):
                    bound[each.arg] = service
        for node in _own_nodes(owner):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if found := self._service(
                    value, bound
                ):
                    bound[name] = found
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if (
                    found := self._services.named_in(annotation)
                ):
                    bound[name] = found
                case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)) if (
                    found := self._service(value, bound)
                ):
                    bound[name] = found
        return bound

    def _service(self, node: ast.AST, known: Mapping[str, str]) -> str | None:
        """Return the service that an expression is."""
        match node:
            case ast.Await(value=value):
                return self._service(value, known)
            case ast.Name(id=name):
                return known.get(name)
            case ast.Attribute(attr=name):
                return name if name in self._services.classes else self._returned.get(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self._returned.get(name) or self._services.named_in(ast.Name(id=name))
        return None


def _own_nodes(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or module without those of functions inside it."""
    for node in ast.iter_child_nodes(owner):
        if not isinstance(node, Function):
            yield node
            yield from _own_nodes(node)
