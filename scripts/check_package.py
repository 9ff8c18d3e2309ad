"""Imports weft and the packages of compat/ from an installed prefix and runs the installed commands.

    scripts/check_package.py <prefix>

The packages must come from the prefix, not from the source tree, which is also on .venv's path. Each must find its
library.
"""

import importlib
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

prefix = Path(sys.argv[1]).resolve()
packages = Path(sysconfig.get_path("platlib", vars={"platbase": str(prefix), "base": str(prefix)}))
sys.path.insert(0, str(packages))
site.addsitedir(str(packages))

names = sorted(path.parent.name for path in packages.glob("*/__init__.py"))
if "weft" not in names:
    sys.exit(f"weft is not in {packages}")
for name in names:
    module = importlib.import_module(name)
    origin = Path(module.__file__ or "")
    if prefix not in origin.parents:
        sys.exit(f"{name} came from {origin}, not from {prefix}")
    print(f"{name} imported from the installed package")
if not (packages / "weft" / "py.typed").exists():
    sys.exit("the installed weft has no py.typed")
for command in ("weft", "weft-switch"):
    subprocess.run([prefix / "bin" / command, "--help"], check=True, stdout=subprocess.DEVNULL)
    print(f"{command} runs from the installed package")
