"""The command, also as `python -m ttanalyze`.

Imports nothing at first, so that an interrupt, however early, ends it without a word. Where
there is something to tidy up, the command line lets interrupts be exceptions.
"""

import signal
import sys


def main() -> None:
    """Runs the command line and ends with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ttanalyze import cli

    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
