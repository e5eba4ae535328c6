#!/usr/bin/env python3
"""Compares bindgen's output for this project's headers with that for UCX's, with the options of the crate ucx1-sys.

usage: bindings.py OUR-INCLUDE UCX-INCLUDE

Every type, constant and function of UCP must be the same, and so must all that this project's headers of UCS declare.
c_tests/clients/ucp_cffi.py tests Python's cffi.
"""
import difflib
import os
import re
import subprocess
import sys
import tempfile

BINDGEN = [
    "bindgen", "--no-layout-tests", "--no-doc-comments", "--disable-header-comment",
    "--allowlist-function", "uc[sp]_.*", "--allowlist-var", "uc[sp]_.*", "--allowlist-var", "UC[SP]_.*",
    "--allowlist-type", "uc[sp]_.*", "--rustified-enum", ".*",
    "--bitfield-enum", "ucp_feature", "--bitfield-enum", ".*_field", "--bitfield-enum", ".*_flags(_t)?",
]
# This project's headers and UCX's: the path by which every header is found.
HEADER = "ucp/api/ucp.h"
# Lines of the output for UCX's headers, whatever else changes: they detect a comparison of two empty lists.
EXPECTED = [
    r"pub enum ucs_status_t \{\s*UCS_OK = 0,",
    r"pub cb: ucp_request_param_t__bindgen_ty_1,",
    r"pub union ucp_request_param_t__bindgen_ty_2 \{",
    r"UCP_MEM_MAP_PROT_LOCAL_READ: _bindgen_ty",
    r"UCP_AM_SEND_REPLY: ucp_send_am_flags",
]


def fail(text):
    sys.exit(f"FAILED: bindings: {text}")


def bindgen(include):
    """The items of bindgen's output, by a name that does not depend on the headers."""
    with tempfile.TemporaryDirectory() as work:
        wrapper = os.path.join(work, "wrapper.h")
        with open(wrapper, "w", encoding="ascii") as out:
            out.write(f"#include <{HEADER}>\n")
        made = subprocess.run([*BINDGEN, wrapper, "--", f"-I{include}"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        fail(f"bindgen with {include}: {made.stderr}")
    for pattern in EXPECTED:
        if not re.search(pattern, made.stdout):
            fail(f"bindgen with {include}: no {pattern}")
    items, lines = {}, []
    for line in made.stdout.splitlines():
        lines.append(line)
        # An item ends with a line that is not indented; an attribute belongs to the next one.
        if line[:1] not in (" ", "#", "") and line.endswith((";", "}")):
            item = re.sub(r"\b_bindgen_ty_\d+", "_bindgen_ty", "\n".join(lines).strip())
            name = re.search(r"^(?:pub|impl) [^{;=:(]*|^    pub (?:fn|static mut) \w+", item, re.M).group(0).strip()
            if "fn(" in item or " fn " in item:
                # Names of parameters differ.
                item = re.sub(r"\b(?:r#)?\w+: ", "_: ", item)
            # Implementations of operators have no content of their own.
            if not name.startswith("impl ::"):
                items.setdefault(name, []).append(item)
            lines = []
    return items


def compare_bindgen(ours, theirs):
    mine, original = bindgen(ours), bindgen(theirs)
    wrong = [f"only ours has {name}" for name in mine if name not in original]
    wrong += [f"ours lacks {name}" for name in original if name not in mine and re.search(r"\b(ucp|UCP)_", name)]
    for name in mine:
        if name in original and sorted(mine[name]) != sorted(original[name]):
            lines = difflib.unified_diff("\n".join(original[name]).split("\n"), "\n".join(mine[name]).split("\n"),
                                         "UCX", "ours", lineterm="")
            wrong.append("\n".join([f"{name} differs:", *lines]))
    if wrong:
        fail("bindgen:\n" + "\n".join(wrong))
    return len(mine)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"bindings: {compare_bindgen(sys.argv[1], sys.argv[2])} items of bindgen fine")
