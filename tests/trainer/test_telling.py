"""What ``python -m hf_decentral.run`` shows of a run, unless the script has a logging of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.scripts.launches import environment

SCRIPT = """
import logging, sys
words = logging.getLogger("hf_decentral.anywhere")
words.info("first")
logging.basicConfig(format="script: %(message)s", stream=sys.stdout)
words.info("second")
"""


def test_it_tells_what_a_script_without_logging_would_not_show(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "hf_decentral.run", str(tmp_path / "script.py")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100, env=environment())
    assert ended.returncode == 0
    assert ended.stderr.splitlines()[-1] == "first" and "second" not in ended.stderr
    assert ended.stdout.splitlines() == ["script: second"]
