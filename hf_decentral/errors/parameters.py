"""Errors about parameters and optimizers that cannot gossip as they are."""

from __future__ import annotations

from hf_decentral.errors.base import MismatchError, ParameterError, sentence


def not_an_optimizer(given: object) -> ParameterError:
    """Something else than a torch optimizer."""
    return ParameterError(
        sentence(
            f"a {type(given).__name__} was given",
            "expected a torch.optim.Optimizer whose step() runs its hooks",
            "derive the class from torch.optim.Optimizer and call super().__init__(params, defaults)",
        )
    )


def not_gossiping(given: object) -> ParameterError:
    """An optimizer that was never decentralized, or a copy of one."""
    return ParameterError(
        sentence(
            f"this {type(given).__name__} does not gossip",
            "expected an optimizer that decentralize() returned (a deepcopy or a pickled copy does not)",
            "call decentralize(optimizer, topology=...) first",
        )
    )


def already_gossiping(given: object) -> ParameterError:
    """decentralize() was called twice."""
    return ParameterError(
        sentence(
            f"this {type(given).__name__} gossips already",
            "an optimizer is decentralized once",
            "use gossip(optimizer) to reach its handle",
        )
    )


def closure_given() -> ParameterError:
    """A closure would take its gradient at the averaged point."""
    return ParameterError(
        sentence(
            "step() was called with a closure",
            "a decentralized optimizer averages inside step(), and the closure would see other parameters "
            "than those that are on the wire",
            "call backward() yourself and then step() without a closure; L-BFGS cannot be decentralized",
        )
    )


def written_in_flight(name: str) -> ParameterError:
    """Somebody wrote to a parameter while it was being sent."""
    return ParameterError(
        sentence(
            f"{name} was changed while its exchange was on the wire",
            "between two steps only the optimizer writes to parameters, or the write would be lost",
            "call gossip(optimizer).flush() before you change weights, or gossip(optimizer).discard() before "
            "you load a checkpoint",
        )
    )


def step_while_averaged() -> ParameterError:
    """A step inside the averaged() context."""
    return ParameterError(
        sentence(
            "step() was called inside averaged(model)",
            "inside averaged() the model holds the consensus, which is put away at its end",
            "leave the context before you train on",
        )
    )


def retired() -> ParameterError:
    """A step of an optimizer whose parameters another one has taken over."""
    return ParameterError(
        sentence(
            "step() was called on an optimizer whose parameters another one trains by now",
            "a parameter is exchanged by one decentralized optimizer",
            "step the optimizer that was decentralized last, or give each its own parameters",
        )
    )


def unsupported_parameter(name: str, what: str, advice: str) -> ParameterError:
    """A parameter that cannot be a view of a flat bucket."""
    return ParameterError(sentence(f"{name} is {what}", "expected a dense tensor of its own", advice))


def overlapping_parameters(first: str, second: str) -> ParameterError:
    """Two parameters that share a part of their memory."""
    return ParameterError(
        sentence(
            f"{first} and {second} share a part of their memory",
            "parameters either share all of their memory (tied weights) or nothing",
            "give one of them memory of its own (parameter.data = parameter.data.clone())",
        )
    )


def wrong_stack(name: str, shape: tuple[int, ...], workers: int) -> ParameterError:
    """A parameter of a simulated run without the leading axis of workers."""
    return ParameterError(
        sentence(
            f"{name} has shape {list(shape)}",
            f"with {workers} workers in one process the first axis of every parameter has {workers} entries",
            "stack the workers' parameters with torch.stack",
        )
    )


def model_needed(order: str) -> ParameterError:
    """An order that averages before the forward pass needs to see the forward pass."""
    return ParameterError(
        sentence(
            f"order={order!r} was chosen without a model",
            "this order averages just before the forward pass, so it needs the model",
            "pass model=..., or choose order='awc'",
        )
    )


def wrong_checkpoint(found: str, expected: str) -> MismatchError:
    """The state of a run with other settings."""
    return MismatchError(
        sentence(
            f"the optimizer state comes from a run with {found}",
            f"this run has {expected}",
            "resume with the settings of the run that saved it",
        )
    )


def between_rounds() -> ParameterError:
    """Parameters are wanted between backward and step, when some are a round ahead of the others."""
    return ParameterError(
        sentence(
            "the average was asked for between backward() and step(), with early=True",
            "expected it after step(): some layers are a step ahead of the others until then",
            "call optimizer.step() first",
        )
    )


def second_backward() -> ParameterError:
    """A gradient came for parameters whose step of this round is taken."""
    return ParameterError(
        sentence(
            "a second backward() came before step(), with early=True",
            "expected one backward() for each step(): a layer is stepped as soon as its gradient is there",
            "leave early=True out where gradients are accumulated",
        )
    )


def cannot_begin_early(optimizer: object, reason: str) -> ParameterError:
    """The local step cannot be taken layer by layer inside backward."""
    return ParameterError(
        sentence(
            f"early=True was given with {type(optimizer).__name__}: {reason}",
            "expected a plain SGD, Adam, AdamW or AccumAdam, order='awc', and one worker a process",
            "leave early=True out: the exchange is then begun bucket by bucket in step()",
        )
    )
