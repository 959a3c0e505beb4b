"""The recorded launch that a traced launch is a replay of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import open_run
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.util import remote


@dataclass(frozen=True)
class Origin:
    """A recorded launch.

    Attributes:
        process: The process that recorded it.
        launch: Its sequence number.
        moved: Regions of that process that were elsewhere in the replay, with these addresses.
    """

    process: Process
    launch: int
    moved: dict[int, int]

    def placed(self, regions: pd.DataFrame) -> pd.DataFrame:
        """Returns the regions of that process with the addresses of the replay."""
        pairs = zip(regions["region"].tolist(), regions["base"].tolist(), strict=True)
        base = [self.moved.get(region, recorded) for region, recorded in pairs]
        return regions.assign(base=np.array(base, "u8"))


def origin(run: Run) -> Origin | None:
    """Returns the launch that a run is a replay of, None if it is none.

    Args:
        run: The run.

    Raises:
        Error: The recorded run is not there, or cannot be read.
    """
    told = run.info.get("replay")
    if not told:
        return None
    try:
        if remote.is_url(told["run"]):  # opening a run that somebody made contacts no server
            raise Error(f"{told['run']}: a URL; put both runs on this machine")
        process = open_run(Path(told["run"])).process(told["process"])
        moved = {int(region): int(address) for region, address in told["moved"].items()}
    except (KeyError, ValueError, TypeError):
        raise Error(f"{run.path / 'run.json'}: replay: not the description of a launch") from None
    except FormatError:
        raise
    except Error as e:
        raise Error(
            f"{run.path}: a replay of launch {told['launch']} of another run: {e}"
        ) from None
    return Origin(process, told["launch"], moved)
