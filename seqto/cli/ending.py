"""How a command ends with an error."""

import os
import sys
from typing import NoReturn

from seqto.config.complaints import complain, exit_code


def end_with(error: Exception) -> NoReturn:
    """End the program with this error's line and exit code; with SEQTO_DEBUG, raise it."""
    if os.environ.get("SEQTO_DEBUG"):
        raise error
    print(f"seqto: error: {complain(error)}", file=sys.stderr)
    sys.exit(exit_code(error))
