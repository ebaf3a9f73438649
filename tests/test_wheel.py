"""The wheel brings all that ``hf-decentral demo`` needs, without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built wheel, unpacked as an installer would."""
    place = tmp_path_factory.mktemp("wheel")
    build = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(ROOT)]
    told = subprocess.run([sys.executable, *build], capture_output=True, text=True, timeout=200)
    assert told.returncode == 0, told.stderr
    [wheel] = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place / "site")
    return place / "site"


@pytest.mark.parametrize(
    "name",
    [
        "_scripts/pretrain_gpt2.py",
        "_scripts/recipes/gpt2_tiny.yaml",
        "_accelerate_configs/decentralized_aer.yaml",
        "data/tiny/text.txt",
        "data/tiny/NOTICE.md",
        "metrics/decentral_bleu.py",
        "metrics/decentral_meteor.py",
        "py.typed",
    ],
)
def test_it_holds(unpacked: Path, name: str):
    assert (unpacked / "hf_decentral" / name).is_file()


def test_it_holds_its_license_and_no_tests(unpacked: Path):
    assert list(unpacked.glob("*.dist-info/licenses/LICENSE"))
    assert not (unpacked / "tests").exists()


def test_the_demo_finds_its_script_inside(unpacked: Path, tmp_path: Path):
    ask = "from hf_decentral.cli import demo; print(demo.find('scripts', 'pretrain_gpt2.py'))"
    told = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert Path(told.stdout.strip()) == unpacked / "hf_decentral" / "_scripts" / "pretrain_gpt2.py", (
        told.stderr
    )
