"""How a command ends with an error."""

import os
import sys
import traceback
from typing import NoReturn

from seqto.config.complaints import complain, exit_code
from seqto.secrets import masked, remember_secrets


def end_with(error: Exception) -> NoReturn:
    """End the program with this error's line and exit code; with SEQTO_DEBUG, its traceback."""
    # Words that make no config may be quoted in pieces.
    remember_secrets(sys.argv[1:])
    if os.environ.get("SEQTO_DEBUG"):
        # Not raised: Hydra and Python would print what is to be masked.
        print(masked("".join(traceback.format_exception(error))), file=sys.stderr)
        sys.exit(exit_code(error))
    print(f"seqto: error: {complain(error)}", file=sys.stderr)
    sys.exit(exit_code(error))
