"""``python -m hf_decentral.calibration``: one worker of a calibration that starts its own."""

from hf_decentral.calibration.app import program

if __name__ == "__main__":
    program()
