"""Checks that each folder of weft/ includes only headers of the folders and libraries that CMake declares for it.

The declarations are the calls of weft_add_library() in CMakeLists.txt and cmake/*.cmake. Run by `make lint`.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Headers of other projects and the dependency that permits them. TORCH is the keyword of weft_add_library().
LIBRARIES = {
    "ATen": "TORCH",
    "c10": "TORCH",
    "torch": "TORCH",
    "mpi.h": "MPI::MPI_CXX",
    "nlohmann": "nlohmann_json::nlohmann_json",
    "openssl": "OpenSSL::Crypto",
    "yaml-cpp": "yaml-cpp",
    "zlib.h": "ZLIB::ZLIB",
    "xxhash.h": "PkgConfig::xxhash",
    "grpcpp": "control_protocols",
    "spdlog": "spdlog::spdlog",
    "CLI": "CLI11::CLI11",
}
KEYWORDS = {"TORCH", "AS_ONE", "WITH", "EXCLUDE", "DEPENDS"}


def declarations() -> dict[str, set[str]]:
    """Returns the declared dependencies of each folder."""
    declared: dict[str, set[str]] = {}
    for file in [ROOT / "CMakeLists.txt", *sorted((ROOT / "cmake").glob("*.cmake"))]:
        text = re.sub(r"#.*", "", file.read_text())
        for call in re.findall(r"(?<!function\()\bweft_add_library\(([^)]*)\)", text):
            folder, *words = call.split()
            dependencies = words[words.index("DEPENDS") + 1 :] if "DEPENDS" in words else []
            declared[folder] = {*dependencies, *({"TORCH"} & set(words))} - (KEYWORDS - {"TORCH"})
        for call in re.findall(r"(?<!function\()\bweft_add_group\(([^)]*)\)", text):
            folder, *parts = call.split()
            declared[folder] = {f"{folder}/{part}" for part in parts}
    return declared


def folder_of(path: str, folders: dict[str, set[str]]) -> str:
    """Returns the innermost declared folder that contains a path relative to weft/."""
    parent = path.rpartition("/")[0]
    while parent and parent not in folders:
        parent = parent.rpartition("/")[0]
    return parent


def permitted(folder: str, declared: dict[str, set[str]]) -> set[str]:
    """Returns the declared dependencies of a folder. A dependency on a group includes its subfolders."""
    result = set(declared[folder])
    for dependency in declared[folder]:
        result |= {part for part in declared.get(dependency, set()) if part.startswith(f"{dependency}/")}
    return result


def violations(declared: dict[str, set[str]]) -> list[str]:
    found = []
    for file in sorted((ROOT / "weft").rglob("*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        folder = folder_of(str(file.relative_to(ROOT / "weft")), declared)
        if not folder:
            continue
        allowed = permitted(folder, declared)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            include = re.match(r'#include [<"]([^>"]+)[>"]', line)
            if not include:
                continue
            header = include.group(1)
            if header.startswith("weft/"):
                needed = folder_of(header.removeprefix("weft/"), declared)
            else:
                needed = LIBRARIES.get(header.split("/")[0], "")
            if needed and needed != folder and needed not in allowed:
                found.append(f"{file.relative_to(ROOT)}:{number}: weft/{folder} does not declare '{needed}' ({header})")
    return found


if __name__ == "__main__":
    problems = violations(declarations())
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} undeclared includes; declare the dependency in CMakeLists.txt or remove the include")
    sys.exit(1 if problems else 0)
