"""The command, also as `python -m ttanalyze`.

It imports nothing at first, so an early interrupt ends it silently. The command line turns
interrupts into exceptions where it must clean up.
"""

import signal
import sys


def main() -> None:
    """Runs the command line and exits with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ttanalyze import cli

    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
