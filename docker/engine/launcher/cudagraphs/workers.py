"""How many of vLLM's workers will report, from the settings. Pure."""

from launcher.options import flags

# Each multiplies the number of workers. Tensor parallelism is a variable of its own.
SIZES = {
    "pipeline-parallel-size": ("-pp",),
    "prefill-context-parallel-size": ("-pcp",),
    "data-parallel-size": ("-dp",),
}
# With any of these a part of the workers runs elsewhere, so that the number here isn't known.
SPREAD = {
    "nnodes": ("-n",),
    "data-parallel-rank": ("-dpn",),
    "data-parallel-start-rank": ("-dpr",),
    "data-parallel-size-local": ("-dpl",),
    "data-parallel-external-lb": ("-dpe",),
    "data-parallel-hybrid-lb": ("-dph",),
    "headless": (),
}


def expected(tensor_parallel: int, arguments: tuple[str, ...]) -> int | None:
    """Workers that a start with these arguments has here; None where that isn't known.

    arguments: the file's of --config, then VLLM_EXTRA_ARGS, so that the last of a flag counts.
    """
    given = {_name(flag): flag.value for flag in flags.read(arguments)}
    if SPREAD.keys() & given.keys():
        return None
    count = tensor_parallel
    for name in SIZES.keys() & given.keys():
        value = (given[name] or "").strip()
        if not (value.isascii() and value.isdecimal()):
            return None  # vLLM's to refuse
        count *= int(value)
    return count


def _name(flag: flags.Flag) -> str:
    names = SIZES | SPREAD
    for name, aliases in names.items():
        if flag.name in (name, *aliases):
            return name
    # A beginning that several share is refused by vLLM itself.
    begun = [name for name in names if flag.name and name.startswith(flag.name)]
    return begun[0] if len(begun) == 1 else flag.name
