# Copyright (c) 2026, the rucp authors. BSD 3-Clause, see LICENSE.
#
# SPDX-License-Identifier: BSD-3-Clause

import os

from spack.package import *


class Rucp(Package):
    """The UCP layer of UCX (libucp.so.0), written in Rust. Programs that are linked to
    libucp.so.0 run on it by LD_PRELOAD, or built with --with-ucx.

    Built from a checkout, where a release has no address:

        spack repo add packaging/spack
        spack dev-build rucp@main
    """

    # The checkout that this file is in.
    git = "file://" + ancestor(os.path.abspath(__file__), 5)

    license("BSD-3-Clause")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("binutils", type="build")

    def install(self, spec, prefix):
        Executable(join_path(self.stage.source_path, "scripts", "install"))(prefix)

    @run_after("install")
    def check_install(self):
        Executable(self.prefix.bin.rucp_info)("-v")
