"""Parameters as views of flat buckets: the bucket is the send buffer, so that sending needs no copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from hf_decentral.errors.parameters import overlapping_parameters, unsupported_parameter, wrong_stack

_ALIGN_BYTES = 64  # a cache line, and the widest vector register

MOST = 32  # buckets of one dtype

Name = Callable[[Tensor], str]
"""How a parameter is called in messages."""


def signature(params: Sequence[Tensor]) -> list[tuple[tuple[int, ...], str, tuple[int, ...]]]:
    """Shape, dtype and strides of each parameter: what workers must agree on to exchange them."""
    return [(tuple(p.shape), str(p.dtype), p.stride() if _dense(p) else ()) for p in params]


def check(params: Sequence[Tensor], stack: int, name: Name) -> None:
    """See that every parameter can live in a bucket.

    Args:
        params: the parameters.
        stack: length of their leading axis of workers; 0 where a process holds one worker.
        name: how to call them in a message.

    Raises:
        ParameterError: a parameter that cannot.
    """
    for p in params:
        if torch.nn.parameter.is_lazy(p) or p.device.type == "meta":
            advice = "run one forward pass, or load the weights, before decentralize()"
            raise unsupported_parameter(name(p), "not initialized yet", advice)
        if p.layout != torch.strided or type(p.data) is not Tensor:
            kind = str(p.layout) if p.layout != torch.strided else f"a {type(p.data).__name__}"
            raise unsupported_parameter(name(p), kind, "decentralize plain, unsharded parameters only")
        if stack and (p.dim() == 0 or p.shape[0] != stack):
            raise wrong_stack(name(p), tuple(p.shape), stack)
    _no_partial_overlap(params, name)


def _no_partial_overlap(params: Sequence[Tensor], name: Name) -> None:
    spans: dict[tuple[int, int], Tensor] = {}
    for p in params:
        if p.numel():
            first = spans.setdefault((p.data_ptr(), p.data_ptr() + _extent(p)), p)
            if (first.shape, first.stride(), first.dtype) != (p.shape, p.stride(), p.dtype):
                raise overlapping_parameters(name(first), name(p))  # a transposed view of the other
    ordered = sorted(spans)
    for before, after in pairwise(ordered):
        if after[0] < before[1]:
            raise overlapping_parameters(name(spans[before]), name(spans[after]))


def _extent(p: Tensor) -> int:
    """Bytes from the first to the end of the last element."""
    last = sum((n - 1) * stride for n, stride in zip(p.shape, p.stride(), strict=True))
    return (last + 1) * p.element_size()


def _dense(p: Tensor) -> bool:
    """True where the elements fill a span of memory without gaps, in whatever order of axes."""
    expected = 1
    for stride, n in sorted((s, n) for s, n in zip(p.stride(), p.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= n
    return True


@dataclass
class _Slot:
    """The place of one parameter (or of several tied ones) in a bucket."""

    params: list[Tensor]
    view: Tensor
    pointer: int
    lane: int
    versions: list[int] = field(default_factory=list)


class Buckets:
    """The parameters of this process in ``[W, P]`` tensors: some for each device and dtype.

    Args:
        params: the parameters; their ``.data`` become views.
        stack: length of their leading axis of workers; 0 where a process holds one worker.
        megabytes: about how much of each worker goes into one bucket.
    """

    def __init__(self, params: Sequence[Tensor], stack: int, megabytes: float) -> None:
        self.params = list(params)
        self._stack = stack
        self._slots: list[_Slot] = []
        self.flats: list[Tensor] = []
        self.members: list[list[Tensor]] = []
        self.layouts: list[list[tuple[int, tuple[int, ...]]]] = []
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for p in reversed(self.params):  # the last layers have their gradients first
            kinds.setdefault((p.device, p.dtype), []).append(p)
        for kind in kinds.values():
            for part in _cut(kind, max(1, stack), megabytes):
                self.flats.append(self._fill(part))
                self.members.append(part)
        lanes = range(len(self.flats))
        self._by_lane = [[slot for slot in self._slots if slot.lane == lane] for lane in lanes]

    def _fill(self, params: list[Tensor]) -> Tensor:
        """One bucket; returns its flat tensor."""
        tied: dict[tuple[int, ...], list[Tensor]] = {}
        for k, p in enumerate(params):
            tied.setdefault((p.data_ptr(), *p.shape, *p.stride()) if p.numel() else (-1, k), []).append(p)
        align = max(1, _ALIGN_BYTES // params[0].element_size())
        rows, offsets, total = self._stack or 1, [], 0
        for same in tied.values():
            offsets.append(total)
            total += -(-(same[0].numel() // rows) // align) * align
        flat = params[0].detach().new_zeros(rows, total)
        self.layouts.append(
            [
                (at, tuple(same[0].shape[1:] if self._stack else same[0].shape))
                for same, at in zip(tied.values(), offsets, strict=True)
            ]
        )
        for same, offset in zip(tied.values(), offsets, strict=True):
            view = self._view(flat, same[0], offset)
            view.copy_(same[0].detach())
            for p in same:
                p.data = view
            self._slots.append(_Slot(same, view, view.data_ptr(), len(self.flats)))
        return flat

    def _view(self, flat: Tensor, p: Tensor, offset: int) -> Tensor:
        """The part of a bucket that stands for a parameter, in the parameter's own memory format."""
        if self._stack:
            inner = p.new_empty(p.shape[1:], device="meta").stride()
            return flat.as_strided(p.shape, (flat.shape[1], *inner), offset)
        stride = p.stride() if _dense(p) else p.new_empty(p.shape, device="meta").stride()
        return flat.as_strided(p.shape, stride, offset)

    def parts(self, lane: int, flat: Tensor) -> Iterator[tuple[list[Tensor], Tensor]]:
        """The parameters of a bucket (tied ones together), each with its part of another ``flat [., P]``."""
        for slot in self._by_lane[lane]:
            shape = slot.view.shape
            if self._stack and flat.shape[0] != self._stack:
                shape = torch.Size((flat.shape[0], *shape[1:]))
            yield slot.params, flat.as_strided(shape, slot.view.stride(), slot.view.storage_offset())

    def fits(self, params: Sequence[Tensor]) -> bool:
        """True while the same parameters with the same shapes, dtypes and ties are to be exchanged."""
        if [id(p) for p in params] != [id(p) for p in self.params]:
            return False
        moved = [
            p.data_ptr() for slot in self._slots for p in slot.params[:1] if p.data_ptr() != slot.pointer
        ]
        if moved and (len(set(moved)) < len(moved) or {slot.pointer for slot in self._slots} & set(moved)):
            return False  # tied since
        return all(
            p.shape == slot.view.shape and p.dtype == slot.view.dtype and p.device == slot.view.device
            for slot in self._slots
            for p in slot.params
        )

    def adopt(self) -> None:
        """Take back parameters whose storage somebody replaced: their values move into the bucket."""
        for slot in self._slots:
            for p in slot.params:
                if p.data_ptr() != slot.pointer:
                    slot.view.copy_(p.detach())
                    for tied in slot.params:
                        tied.data = slot.view
                    break

    def mark(self, lane: int) -> None:
        """Remember how often each parameter of one bucket was written to until now."""
        for slot in self._by_lane[lane]:
            slot.versions = [p._version for p in slot.params]

    def written(self, lane: int | None = None) -> Tensor | None:
        """A parameter (of one bucket, or of any) that was written to, or replaced, since :meth:`mark`."""
        for slot in self._slots if lane is None else self._by_lane[lane]:
            for p, version in zip(slot.params, slot.versions, strict=True):
                if p._version != version or p.data_ptr() != slot.pointer:
                    return p
        return None


def _cut(params: list[Tensor], rows: int, megabytes: float) -> list[list[Tensor]]:
    """Parts of about so many megabytes, tied parameters together, :data:`MOST` of them at most."""
    sizes = {p.data_ptr(): p.numel() * p.element_size() // rows for p in params}
    limit = max(megabytes * 2**20, sum(sizes.values()) / MOST)
    parts: list[list[Tensor]] = []
    where: dict[int, int] = {}
    filled = limit
    for p in params:
        if p.numel() and p.data_ptr() in where:
            parts[where[p.data_ptr()]].append(p)
            continue
        if filled >= limit or not parts:
            parts.append([])
            filled = 0.0
        parts[-1].append(p)
        where[p.data_ptr()] = len(parts) - 1
        filled += sizes[p.data_ptr()]
    return parts
