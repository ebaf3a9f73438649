"""New buckets, when an optimizer begins or its parameters came or went: a talk of all workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from hf_decentral.errors import DecentralizedError
from hf_decentral.optim import consensus
from hf_decentral.optim.agreement import Proposal, agree, describe, make_equal
from hf_decentral.optim.bucket import Buckets, Name, check
from hf_decentral.optim.memories import Memories
from hf_decentral.transport import Transport


class Wire(NamedTuple):
    """How buckets are made and agreed on.

    Attributes:
        transport: what carries the numbers.
        name: how to call a parameter in a message.
        bucket_mb: about how much of a worker goes into a bucket, in megabytes.
    """

    transport: Transport
    name: Name
    bucket_mb: float


def renewed(
    params: list[Tensor], old: Buckets | None, equal: Mapping[int, Tensor], memories: Memories, wire: Wire
) -> Buckets:
    """Buckets for these parameters. Collective: all workers must come here together.

    Newcomers get worker 0's values; those that leave get the mean, so that all workers keep one model.

    Args:
        params: what is exchanged from now on.
        old: the buckets until now.
        equal: the parameters, by ``id``, that the workers once agreed on and made equal.
        memories: of the averaging method; those of old buckets are cleared.
        wire: how to talk.

    Raises:
        ParameterError, MismatchError: a parameter that cannot be exchanged, or workers that disagree.
    """
    transport, stack = wire.transport, len(wire.transport.local) if len(wire.transport.local) > 1 else 0
    problem: Exception | None = None
    try:
        check(params, stack, wire.name)
    except DecentralizedError as error:
        problem = error
    said = str(problem) if problem else None
    agree(transport, Proposal(describe(params, wire.name), said), problem)
    now = {id(p) for p in params}
    for p in old.params if old is not None else ():
        if id(p) not in now:
            consensus.average_(p, transport)
    make_equal(transport, [p for p in params if id(p) not in equal])
    if (old is not None and not memories.forgetful) or memories.anew:
        for p in params:  # what the method remembers fits the old buckets: it begins anew, from one point
            consensus.average_(p, transport)
        memories.clear()
    with torch.inference_mode(False), torch.no_grad():
        buckets = Buckets(params, stack, wire.bucket_mb)
    memories.fit(buckets)
    return buckets
