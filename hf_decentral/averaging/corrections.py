"""The rows of methods that correct for momentum, delay or unequal data: maker, summary, defaults."""

from __future__ import annotations

from collections.abc import Callable

from hf_decentral.averaging.al_dsgd import al_dsgd
from hf_decentral.averaging.base import Averaging
from hf_decentral.averaging.d2 import d2
from hf_decentral.averaging.dc_s3gd import dc_s3gd
from hf_decentral.averaging.decentlam import decentlam
from hf_decentral.averaging.gradient_tracking import gradient_tracking
from hf_decentral.averaging.qg_dsgdm import qg_dsgdm

ROWS: dict[str, tuple[Callable[..., Averaging], str, tuple[float, ...]]] = {
    "al_dsgd": (al_dsgd, "a pull towards the neighbours that lead: al_dsgd(best, degree)", (0.1, 0.1)),
    "d2": (d2, "bias of unequal data taken out with the last round's change", ()),
    "dc_s3gd": (dc_s3gd, "gradients corrected for the way to the late average: dc_s3gd(lam)", (0.2,)),
    "decentlam": (decentlam, "momentum of the step with its average, without bias: decentlam(beta)", (0.9,)),
    "gradient_tracking": (
        gradient_tracking,
        "steps along an estimate of the mean gradient; twice the bytes",
        (),
    ),
    "qg_dsgdm": (qg_dsgdm, "momentum of what the average did to the parameters: qg_dsgdm(beta)", (0.9,)),
}
