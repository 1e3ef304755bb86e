"""Can tensor parallelism divide this model at all? What vLLM refuses while it loads. Pure."""

from __future__ import annotations

from fit import packing
from fit.shape import Shape


def refusal(shape: Shape, ranks: int) -> str | None:
    """Why `ranks` do not divide the model: found and wanted; None where they do."""
    if shape.heads % ranks:
        return (
            f"found {shape.heads} attention heads; wanted a multiple of"
            f" TENSOR_PARALLEL_SIZE={ranks}"
        )
    more, fewer = max(shape.kv_heads, ranks), min(shape.kv_heads, ranks)
    if shape.latent is None and more % fewer:
        return (
            f"found {shape.kv_heads} KV heads; wanted a number that TENSOR_PARALLEL_SIZE={ranks}"
            " divides, or that divides it"
        )
    return _parts(shape, ranks)


def _parts(shape: Shape, ranks: int) -> str | None:
    """Layers are cut in equal parts, and quantised ones between two scales (fp8_utils.py
    validate_fp8_block_shape, marlin_utils.py verify_marlin_supports_shape)."""
    unit = packing.block(shape.quantization) or 1
    for name, width in _widths(shape):
        if ranks > 1 and (width % ranks or width // ranks % unit):
            of = f" in blocks of {unit}" if unit > 1 else ""
            return (
                f"found the {name} of {width:,}{of}; wanted one that TENSOR_PARALLEL_SIZE={ranks}"
                " cuts in whole parts"
            )
    return None


def _widths(shape: Shape) -> list[tuple[str, int]]:
    moe = shape.experts
    dense = moe is None or moe.layers < shape.layers
    widths = [("intermediate size", shape.intermediate)] if dense else []
    if moe is None:
        return widths
    if packing.bits(shape.quantization, None)[0] == "mxfp4":
        return widths  # padded there
    widths.append(("experts' intermediate size", moe.intermediate))
    if moe.shared_intermediate:
        widths.append(("shared expert's intermediate size", moe.shared_intermediate))
    return widths
