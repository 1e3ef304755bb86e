"""Where vLLM begins: called in each of its processes, by the entry point vllm.general_plugins.

In a forked child it isn't called again, so what it sets up has to live on there; a second call in
one process changes nothing.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

from graphproof import hooks, notes

# The class through which every executor reaches its worker. It imports much, so that the API
# process and vLLM's helpers should not have to import it for us.
WORKERS = "vllm.v1.worker.worker_base"


def register() -> None:
    """Nothing without ENGINE_PROOF_DIR."""
    folder = os.environ.get("ENGINE_PROOF_DIR")
    if folder:
        notes.listen(Path(folder))
        when_imported(WORKERS, hooks.install)


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call `then` with the module `name`: now if it is there, else once it was imported."""
    if name in sys.modules:
        then(sys.modules[name])
    elif not any(isinstance(each, Finder) and each.name == name for each in sys.meta_path):
        sys.meta_path.insert(0, Finder(name, then))


class Finder(MetaPathFinder):
    """Finds one module as all others do, and has something called once it was executed."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
