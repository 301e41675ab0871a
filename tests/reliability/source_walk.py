"""Finds what could run code from data in a module's source, whatever it is imported as."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

# By whole name, after the module's own names are traced back to what it imported; a * stands for any ending.
REFUSED = {
    "builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__",
    "os.system", "os.popen", "os.exec*", "os.spawn*", "os.posix_spawn*", "os.startfile", "pty.spawn",
    "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell",
    "importlib.reload", "importlib.__import__", "importlib.machinery.*", "importlib.util.spec_from_*",
    "importlib.util.module_from_spec", "pkgutil.get_loader", "types.FunctionType", "types.CodeType",
    "torch.package*", "torch.hub*",
}  # fmt: skip
# Whatever they are attributes of.
METHODS = {
    "system", "popen", "read_pickle", "run_path", "run_module", "exec_module", "load_module", "exec",
    "subprocess_shell",
}  # fmt: skip
MODULES = {
    "pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle", "yaml",
    "ruamel", "dbm", "code", "codeop", "runpy", "imp", "zipimport",
}  # fmt: skip
# What may be called in one way only, and in no other way be named: passed on, it could be called in any.
GUARDED = {
    **dict.fromkeys(("torch.load", "torch.jit.load"), ("weights_only", "True")),
    **dict.fromkeys(
        ("numpy.load", "numpy.save", "numpy.lib.format.read_array", "numpy.lib.format.write_array"),
        ("allow_pickle", "False"),
    ),
}
# Where a name becomes an import.
IMPORTERS = {"importlib.import_module", "pkgutil.resolve_name", "pydoc.locate"}
_BUILTINS = {"eval", "exec", "compile", "__import__", "getattr"}


class Names:
    """What the names of a module stand for.

    Args:
        tree: the module.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.imported: list[str] = []
        self.stars: list[str] = []
        self._means: defaultdict[str, set[str]] = defaultdict(set)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.imported += [alias.name for alias in node.names]
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._means[alias.asname or whole].add(whole)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                self.stars += [module for alias in node.names if alias.name == "*"]
                for alias in node.names:
                    self.imported.append(f"{module}.{alias.name}")
                    self._means[alias.asname or alias.name].add(f"{module}.{alias.name}")
        # A name that is given to another: `e = eval`, `t = torch`. Twice, for a name of a name.
        for _ in range(2):
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        if isinstance(target, ast.Name):
                            self._means[target.id] |= self.of(node.value)

    def of(self, node: ast.AST) -> set[str]:
        """Return the whole names that an expression may stand for; none if it is not a name."""
        if isinstance(node, ast.Name):
            builtin = {f"builtins.{node.id}"} if node.id in _BUILTINS else set()
            return set(self._means.get(node.id, ())) or builtin
        if isinstance(node, ast.Attribute):
            return {f"{whole}.{node.attr}" for whole in self.of(node.value)}
        if isinstance(node, ast.Call) and "builtins.getattr" in self.of(node.func) and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant):
                return {f"{whole}.{name.value}" for whole in self.of(node.args[0])}
        return set()


def faults(source: str) -> list[str]:
    """Return what a module does that could run code from data."""
    tree = ast.parse(source)
    names = Names(tree)
    found = [name for name in names.imported if name.split(".")[0] in MODULES or _is_refused(name)]
    found += [name for name in names.imported if name in GUARDED]
    found += [f"from {module} import *" for module in names.stars]
    safe = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_safe(node, names)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += [f"{ast.unparse(node.func)}({word})" for word in _given(node) if _is_unsafe(word)]
        wholes = names.of(node)
        found += [whole for whole in wholes if _is_refused(whole)]
        found += [whole for whole in wholes if whole in GUARDED and id(node) not in safe]
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.append(ast.unparse(node))
    return found


def importers(source: str) -> set[str]:
    """Return the functions, by their whole names, with which a module makes an import of a name."""
    tree = ast.parse(source)
    names = Names(tree)
    used = {whole for node in ast.walk(tree) for whole in names.of(node)} | set(names.imported)
    return used & IMPORTERS


def _is_refused(whole: str) -> bool:
    return any(whole.startswith(name[:-1]) if name.endswith("*") else whole == name for name in REFUSED)


def _is_safe(call: ast.Call, names: Names) -> bool:
    given = dict(word.partition("=")[::2] for word in _given(call))
    return all(
        given.get(GUARDED[whole][0]) == GUARDED[whole][1] for whole in names.of(call.func) if whole in GUARDED
    )


def _given(call: ast.Call) -> Iterator[str]:
    """Yield keyword=value for each."""
    for word in call.keywords:
        yield f"{word.arg}={ast.unparse(word.value)}"


def _is_unsafe(word: str) -> bool:
    name, _, value = word.partition("=")
    wanted = {"shell": "False", "trust_remote_code": "False", "weights_only": "True", "allow_pickle": "False"}
    return name in wanted and value != wanted[name]
