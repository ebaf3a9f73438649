"""``python -m hf_decentral.cli``: the same as ``hf-decentral``, for launchers that take a module."""

from hf_decentral.cli import main

if __name__ == "__main__":
    main()
