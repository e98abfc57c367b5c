"""Where the configs and the Hydra plugin are: in a wheel inside the package, else beside it."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
PLUGINS = PACKAGE / "_plugins"
