"""How a command ends that cannot do what it was asked to."""

import os
import sys
from typing import NoReturn

from seqto.config.complaints import complain, exit_code


def end_with(error: Exception) -> NoReturn:
    """End the program with this error's line and exit code, or its traceback if wanted."""
    if os.environ.get("SEQTO_DEBUG"):
        raise error
    print(f"seqto: error: {complain(error)}", file=sys.stderr)
    sys.exit(exit_code(error))
