"""The file with which ``accelerate launch`` starts what was recommended."""

from __future__ import annotations

from hf_decentral.cluster.measured import Measured
from hf_decentral.errors.planner import uneven_hosts
from hf_decentral.planner.advise import Recommendation
from hf_decentral.planner.assumed import per_host
from hf_decentral.planner.candidates import ALLREDUCE, PLAIN

_SEVERAL = """\
machine_rank: 0               # 0, 1, 2, ...: another number on each machine
main_process_ip: 192.0.2.1    # replace it by the address of machine 0
main_process_port: 29500
"""
_ONE = """\
machine_rank: 0
main_process_port: 0          # any free port
"""
_REST = """\
main_training_function: main
mixed_precision: 'no'
downcast_bf16: 'no'
rdzv_backend: static
same_network: true
use_cpu: false                # the scripts use CPUs by themselves where there is no accelerator
gpu_ids: all
# Accelerate leaves this section unread where no MPI host file is named; hf_decentral has its settings there.
"""
_HOOK = """\
# All-Reduce with half the bytes: Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(comm_hook=
# DDPCommunicationHookType.{})]), both from accelerate; a launch file cannot say it.
"""


def launch_file(measured: Measured, advice: Recommendation) -> str:
    """The text of the file, like those in ``accelerate_configs``.

    Raises:
        SettingsError: hosts have unequal numbers of workers, which a launch file cannot say.
    """
    sizes = per_host(measured)
    if len(set(sizes)) > 1:
        raise uneven_hosts(",".join(map(str, sizes)))
    name = advice.topology if advice.codec == PLAIN else f"{advice.topology} + {advice.codec}"
    machines = f"{len(sizes)} machines with {sizes[0]} workers each" if len(sizes) > 1 else "one machine"
    faster = f"{advice.speedup_over_allreduce:.2f} times as fast as All-Reduce"
    lines = [
        f"# What hf-decentral plan recommends for {machines}: {name},",
        f"# predicted to be {faster}.",
        "compute_environment: LOCAL_MACHINE",
        # The launcher's name for one process per worker, on CPUs too.
        f"distributed_type: {'MULTI_GPU' if measured.workers > 1 else 'NO'}",
        f"num_machines: {len(sizes)}",
        f"num_processes: {measured.workers}",
        (_SEVERAL if len(sizes) > 1 else _ONE) + _REST.rstrip(),
    ]
    if advice.topology == ALLREDUCE and advice.codec != PLAIN:
        lines.append(_HOOK.format(advice.codec.upper()).rstrip())
    lines += ["mpirun_config:", f"  decentral_topology: {_quoted(advice.topology)}"]
    if advice.topology != ALLREDUCE and advice.codec != PLAIN:
        lines.append(f"  decentral_averaging: {_quoted(advice.codec)}")
    if len(sizes) > 1:
        lines.append("  decentral_comm_timeout: 600")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return f"'{text}'" if "(" in text else text
