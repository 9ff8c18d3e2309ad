"""Prints "passed <name>", "failed <name>" or "skipped <name>" for each test of a JUnit file."""

import sys
import xml.etree.ElementTree as ElementTree


def result(case: ElementTree.Element) -> str:
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "failed" if case.find("failure") is not None or case.get("status") == "fail" else "passed"


for test_case in ElementTree.parse(sys.argv[1]).iter("testcase"):
    print(result(test_case), test_case.get("name"))
