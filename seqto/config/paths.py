"""The folders of configs and the Hydra plugin; a wheel has the configs inside the package."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
PLUGINS = PACKAGE / "_plugins"
