"""The wheel's tag: any Python 3, one processor, and the glibc that the library needs (scripts/package finds it)."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['RUCP_PLATFORM']}"
