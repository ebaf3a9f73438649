"""``hf-decentral demo``: GPT-2 on a small text, 4 workers that gossip beside the same run with All-Reduce."""

from __future__ import annotations

import importlib.util
import json as json_module
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hf_decentral.cli.output import Json, console, errors, write_json
from hf_decentral.cli.report import Finished, plot, read_run, table
from hf_decentral.errors import out_of_range
from hf_decentral.errors.cli import no_launch_files, not_writable, run_failed

PACKAGE = Path(__file__).resolve().parent.parent
LOOK_SECONDS = 0.5
LOG_EVERY = 5


class Planned(NamedTuple):
    """One run: its folder, its name in the plot, what it does not share with the other."""

    folder: str
    label: str
    flags: tuple[str, ...]


PLAN = (
    Planned("allreduce", "All-Reduce, AdamW", ("--topology", "allreduce", "--optim", "adamw")),
    Planned(
        "aer",
        "gossip (AER, one worker a host), AdamW",
        ("--topology", "aer", "--optim", "adamw", "--embedding_scale", "4"),
    ),
)
# What both share: about 1 million parameters, some minutes on 2 cores.
SHARED = {
    "tokenizer": "bpe:2048",
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "block_size": 64,
    "batch_size": 8,
    "warmup_steps": 20,
    "lr": 2e-3,
    "eval_contexts": 256,
    "log_every": LOG_EVERY,
}


def find(folder: str, name: str) -> Path:
    """A file that stands in the repository, or inside the package where that was installed from a wheel.

    Raises:
        LaunchError: it is in neither place.
    """
    installed, cloned = PACKAGE / f"_{folder}" / name, PACKAGE.parent / folder / name
    for path in (installed, cloned):
        if path.is_file():
            return path
    raise no_launch_files(installed)


def command(planned: Planned, steps: int, workers: int, seed: int, folder: Path) -> list[str]:
    """The words of one ``accelerate launch``."""
    flags = {
        **SHARED,
        "max_steps": steps,
        "eval_every": max(1, steps // 6),
        "seed": seed,
        "output_dir": folder,
    }
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(find("accelerate_configs", "decentralized_aer.yaml"))),
        *("--num_processes", str(workers)),
        str(find("scripts", "pretrain_gpt2.py")),
        *(word for name, value in flags.items() for word in (f"--{name}", str(value))),
        *planned.flags,
    ]


def environment(workers: int) -> dict[str, str]:
    """This process's environment without what would change a run; CPUs where there are too few GPUs."""
    import torch

    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DECENTRAL_") and name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    }
    kept["DECENTRAL_HOSTS"] = ",".join("1" * workers)  # as if each had a machine of its own
    kept.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores
    kept.setdefault("TOKENIZERS_PARALLELISM", "false")
    if torch.cuda.is_available() and torch.cuda.device_count() < workers:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    return kept


def launch(
    planned: Planned, words: list[str], folder: Path, workers: int, advance: Progress, task: TaskID
) -> None:
    """Run one training to its end, and show how far it is.

    Raises:
        LaunchError: it ended with an error; the end of its log is printed.
    """
    log = folder / "log.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").unlink(missing_ok=True)  # of an earlier demo
        (folder / "summary.json").unlink(missing_ok=True)
        stream = log.open("w", encoding="utf-8")
    except OSError as error:
        raise not_writable(folder, str(error)) from error
    with stream:
        # In a session of its own: Ctrl-C comes to us alone, and we end it in order.
        process = subprocess.Popen(
            words, stdout=stream, stderr=stream, env=environment(workers), start_new_session=True
        )
        try:
            while process.poll() is None:
                time.sleep(LOOK_SECONDS)
                advance.update(task, completed=steps_done(folder))
        finally:
            end(process)
    if process.returncode != 0 or not (folder / "summary.json").is_file():
        errors.print(last_words(log), markup=False, soft_wrap=True)
        raise run_failed(planned.label, process.returncode, log)
    advance.update(task, completed=steps_done(folder))


def last_words(log: Path, lines: int = 12) -> str:
    """The end of what the workers wrote; the launcher's own report, which follows, names no cause."""
    written = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    launcher = next((k for k, line in enumerate(written) if "torch/distributed/elastic" in line), 0)
    return "\n".join((written[:launcher] or written)[-lines:])


def end(process: subprocess.Popen[bytes], grace_seconds: float = 10.0) -> None:
    """End a launcher that still runs, and its workers, which have sessions of their own."""
    if process.poll() is not None:
        return
    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        started = []
    process.terminate()
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for worker in psutil.wait_procs(started, timeout=1)[1]:
        worker.kill()


def steps_done(folder: Path) -> int:
    """The last step that metrics.jsonl tells of."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return int(json_module.loads(lines[-1])["step"])
    except (OSError, ValueError, KeyError, IndexError):
        return 0  # not begun, or a line half written


def run_all(steps: int, workers: int, seed: int, output: Path) -> list[Finished]:
    """Both runs, one after the other, with a progress bar each."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    finished = []
    with Progress(*columns, console=console) as progress:
        tasks = [progress.add_task(planned.label, total=steps, start=False) for planned in PLAN]
        for planned, task in zip(PLAN, tasks, strict=True):
            folder = output / planned.folder
            progress.start_task(task)
            words = command(planned, steps, workers, seed, folder)
            launch(planned, words, folder, workers, progress, task)
            finished.append(read_run(folder, planned.label))
    return finished


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def demo(
        steps: Annotated[int, typer.Option(help="Optimizer steps of each run.")] = 300,
        workers: Annotated[int, typer.Option(help="Workers of each run, all on this machine.")] = 4,
        seed: Annotated[int, typer.Option(help="Seed of weights and data, the same in both runs.")] = 0,
        output_dir: Annotated[Path, typer.Option("--output_dir", help="Where everything is written.")] = Path(
            "runs/demo"
        ),
        json: Json = None,
    ) -> None:
        """Train GPT-2 with gossip beside All-Reduce: the same text, tokens and seeds; a table and a plot."""
        for name, value, least in (("--steps", steps, 1), ("--workers", workers, 1), ("--seed", seed, 0)):
            if value < least:
                raise out_of_range(name, value, f"a whole number, {least} or more", "raise it")
        finished = run_all(steps, workers, seed, output_dir)
        console.print(table(finished))
        picture = output_dir / "demo.png"
        if importlib.util.find_spec("matplotlib"):
            plot(finished, picture)
            console.print(f"plot: {picture}", soft_wrap=True)
        else:  # the runs are what took the time: do not lose them for a picture
            console.print("no plot: pip install 'hf-decentral[report]' brings matplotlib")
        console.print(f"logs and models: {output_dir}", soft_wrap=True)
        write_json(json, {"runs": [run.summary for run in finished]})
